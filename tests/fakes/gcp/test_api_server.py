"""A cluster of the fake with a real API server, which accepts the tokens of the fake."""

import base64
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from google.iam.v1 import policy_pb2

from fakes.gcp.clients import Clients, credentials, token_of
from fakes.gcp.fake import FakeGoogle
from fakes.gcp.services.world import GcpEndpoint
from testbed.cluster.control_plane import ClusterControlPlane
from testbed.fleet.home import Home
from testbed.programs.install import Installer
from testbed.programs.versions import TOOLS
from tests.environment.waiting import pauses
from tests.fakes.gcp.objects import a_cluster, plant_network

pytestmark = pytest.mark.testbed("shared")


@pytest.fixture
def plane(tmp_path: Path, google: FakeGoogle) -> Iterator[ClusterControlPlane]:
    """The store and the API server of one control plane, which asks the fake about
    tokens.
    """
    home = Home(tmp_path)
    programs = Installer(print).programs(
        tool for tool in TOOLS if tool.name in {"etcd", "kubernetes"}
    )
    plane = ClusterControlPlane(
        "prod", home, programs, simulated=False, token_review=google.review_url
    )
    home.choose_ports(plane.ports(), print)
    plane.write_files()
    store, server = plane.store_and_server()
    with ExitStack() as running:
        for command in (store.argv, server.argv):
            log = running.enter_context(
                (tmp_path / f"{Path(command[0]).name}.log").open("w")
            )
            process = running.enter_context(
                subprocess.Popen(command, stdout=log, stderr=log)
            )
            running.callback(process.kill)
        yield plane


def test_the_account_of_a_ready_cluster_logs_in_at_its_api_server(
    google: FakeGoogle, clients: Clients, parent: str, plane: ClusterControlPlane
) -> None:
    ca = plane.authority.ca.read_bytes()
    google.connect(
        {
            f"{parent}/clusters/prod": GcpEndpoint(
                plane.server.removeprefix("https://"), base64.b64encode(ca).decode()
            )
        }
    )
    plant_network(google)
    clients.container.create_cluster(parent=parent, cluster=a_cluster())
    google.finish()
    ready = clients.container.get_cluster(name=f"{parent}/clusters/prod")

    project = f"projects/{google.project}"
    account = clients.iam.create_service_account(
        request={"name": project, "account_id": "mp-0a1b2c3d"}
    )
    key = clients.iam.create_service_account_key(
        name=account.name
    ).private_key_data.decode()
    token = token_of(credentials(key))

    trusted = ssl.create_default_context(
        cadata=base64.b64decode(ready.master_auth.cluster_ca_certificate).decode()
    )
    with httpx.Client(
        base_url=f"https://{ready.endpoint}", verify=trusted, timeout=60
    ) as api:

        def nodes(bearer: str) -> int:
            try:
                return api.get(
                    "/api/v1/nodes", headers={"Authorization": f"Bearer {bearer}"}
                ).status_code
            except httpx.TransportError:
                return 0

        for pause in pauses():
            if nodes(token) == 403:
                break
            time.sleep(pause)
        assert (nodes(token), nodes("ya29.other")) == (403, 401)
        policy = clients.projects.get_iam_policy(resource=project)
        policy.bindings.append(
            policy_pb2.Binding(
                role="roles/container.admin",
                members=[f"serviceAccount:{account.email}"],
            )
        )
        clients.projects.set_iam_policy(request={"resource": project, "policy": policy})
        # The API server caches the answer about a token for some seconds, so a new
        # token is used.
        assert nodes(token_of(credentials(key))) == 200
