"""All objects of a planned cluster are created, and gone in the end."""

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from activities.clouds.desired.graph import CloudCall, DesiredObject, arguments
from fakes.gcp.clients import Clients, compute_client
from fakes.gcp.fake import FakeGoogle
from tests.activities.clouds.builders import PROJECT, a_pool, gke
from tests.environment.late import Late

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from google.cloud import compute_v1
else:
    compute_v1 = Late("google.cloud.compute_v1")


@pytest.fixture
def google() -> Any:
    with FakeGoogle(PROJECT) as google:
        yield google


class Cloud:
    """Return all clients with a real credential, by their names in the planned calls."""

    def __init__(self, google: FakeGoogle, clients: Clients) -> None:
        self.google = google
        self._clients = {
            "container": clients.container,
            "serviceusage": clients.service_usage,
            "iam": clients.iam,
            "resourcemanager.projects": clients.projects,
            "compute.networks": compute_client(
                compute_v1.NetworksClient, google.compute_url, google.credential
            ),
            "compute.subnetworks": compute_client(
                compute_v1.SubnetworksClient, google.compute_url, google.credential
            ),
        }
        self._tokens = itertools.count()

    def create(self, planned: DesiredObject) -> None:
        for call in planned.calls:
            if call.service != "kubernetes":
                self._call(call)
        self.google.finish()

    def _call(self, call: CloudCall) -> None:
        request = arguments(call, lambda _: "", f"token-{next(self._tokens)}")
        if call.operation == "set_iam_policy":
            policy = self._clients[call.service].get_iam_policy(
                resource=request["resource"]
            )
            policy.bindings.add(**request["policy"]["bindings"][0])
            request["policy"] = policy
        getattr(self._clients[call.service], call.operation)(request=request)

    def delete(self, service: str, method: str, **request: str) -> None:
        getattr(self._clients[service], method)(request=request)
        self.google.finish()

    def close(self) -> None:
        for name, client in self._clients.items():
            if name.startswith("compute"):
                client.transport.close()


def test_every_planned_call_is_accepted_and_every_object_can_be_deleted(
    google: FakeGoogle,
) -> None:
    made = gke(a_pool(nodeCount=1, minNodeCount=0, maxNodeCount=2))
    with Clients(google.grpc_target, google.credential) as clients:
        cloud = Cloud(google, clients)
        for planned in made.objects:
            cloud.create(planned)
        name = next(
            call.target for call in google.ledger().calls("container.create_cluster")
        )
        cluster = clients.container.get_cluster(name=name)
        assert (cluster.status.name, [pool.name for pool in cluster.node_pools]) == (
            "RUNNING",
            ["gpu", "system"],
        )
        assert google.enabled("file.googleapis.com")
        creations = google.ledger().creations()
        assert len(creations) == len(set(creations)) == 5
        assert [call for call in google.ledger().calls() if not call.account] == []

        base, root = cluster.name, f"projects/{PROJECT}"
        (member,) = google.members("roles/container.defaultNodeServiceAccount")
        account = f"{root}/serviceAccounts/{member.removeprefix('serviceAccount:')}"
        cloud.delete("container", "delete_cluster", name=name)
        cloud.delete(
            "compute.subnetworks",
            "delete_unary",
            project=PROJECT,
            region="europe-west4",
            subnetwork=f"{base}-nodes",
        )
        cloud.delete("compute.networks", "delete_unary", project=PROJECT, network=base)
        policy = clients.projects.get_iam_policy(resource=root)
        del policy.bindings[
            next(
                at
                for at, each in enumerate(policy.bindings)
                if each.role == "roles/container.defaultNodeServiceAccount"
            )
        ]
        clients.projects.set_iam_policy(request={"resource": root, "policy": policy})
        cloud.delete("iam", "delete_service_account", name=account)
        cloud.close()
    assert google.remains() == []
