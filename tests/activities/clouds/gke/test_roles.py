"""The custom roles in `deploy/clouds/gcp` contain exactly the permissions in use.

The calls are collected from the code, and from a whole life at a fake that enforces the
roles.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

import activities.clouds.gke
from activities.clouds.gke.clients import COMPUTE_CLIENTS, GRPC_CLIENTS
from activities.clouds.gke.rights import CALLS, permissions_of
from api_types.errors import Dependency, PermissionDenied
from fakes.gcp.calls.faults import Kind
from fakes.gcp.fake import FakeGoogle
from fakes.gcp.services.permissions import needed
from tests.activities.clouds.builders import a_pool
from tests.activities.clouds.gke.cloud import a_cloud, run

FOLDER = Path(__file__).parents[4] / "deploy" / "clouds" / "gcp"
ROLES: dict[str, Any] = {
    name: yaml.safe_load((FOLDER / f"{name}.yaml").read_text()) for name in CALLS
}
SERVICES = {
    *GRPC_CLIENTS,
    *(f"compute.{each}" for each in COMPUTE_CLIENTS),
    "compute.http_health_checks",
}
DELETIONS = {
    "compute.addresses.delete",
    "compute.backend_services.delete",
    "compute.firewalls.delete",
    "compute.forwarding_rules.delete",
    "compute.network_endpoint_groups.delete",
    "compute.target_pools.delete",
    "container.delete_cluster",
    "iam.delete_service_account",
}
FREE = {("resourcemanager.projects", "test_iam_permissions")}


@pytest.mark.parametrize("name", CALLS)
def test_a_custom_role_has_exactly_the_permissions_of_its_calls(name: str) -> None:
    assert ROLES[name]["includedPermissions"] == list(permissions_of(name))
    assert ROLES[name]["stage"] == "GA"


def texts(nodes: Any) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_the_calls_are_those_of_the_code() -> None:
    words: set[str] = set()
    for path in Path(activities.clouds.gke.__path__[0]).rglob("*.py"):
        if path.name not in ("rights.py", "clients.py"):
            words |= set(texts(ast.walk(ast.parse(path.read_text()))))
    known = {call for calls in CALLS.values() for call in calls} | FREE
    of_grpc = [call for call in known if call[0] in GRPC_CLIENTS]
    methods = {name for client in GRPC_CLIENTS.values() for name in dir(client)}
    assert {name for _, name in of_grpc} == {
        each for each in words & methods if "_" in each and not each.startswith("_")
    }
    assert all(hasattr(GRPC_CLIENTS[service], name) for service, name in of_grpc)
    used = {service for service, _ in known if service.startswith("compute.")}
    named = {each for each in SERVICES & words if each.startswith("compute.")}
    assert used == named | {"compute.http_health_checks"}


def test_the_fake_demands_the_same_permissions() -> None:
    differing = {
        call: (permissions, demanded)
        for calls in CALLS.values()
        for call, permissions in calls.items()
        if sorted(demanded := needed(".".join(call), "")) != sorted(permissions)
    }
    assert differing == {}


# At the fake


def limit(google: FakeGoogle, *names: str) -> None:
    google.limit(
        google.email,
        *(each for name in names for each in ROLES[name]["includedPermissions"]),
    )


@pytest.mark.slow
def test_an_account_of_the_user_for_nodes_needs_no_rights_on_accounts(
    google: FakeGoogle,
) -> None:
    spared = {
        "iam.serviceAccounts.create",
        "iam.serviceAccounts.delete",
        "resourcemanager.projects.setIamPolicy",
    }
    rights = {each for name in CALLS for each in permissions_of(name)}
    google.limit(google.email, *(rights - spared))
    nodes = f"nodes@{google.project}.iam.gserviceaccount.com"
    cloud = a_cloud(google, a_pool(), direct=False)
    assert len(cloud.plan().warnings) == len(spared)
    cloud.block["nodeServiceAccount"] = nodes
    assert cloud.plan().warnings == ()


def refused(google: FakeGoogle) -> list[str]:
    calls = google.ledger().calls()
    return [call.name for call in calls if call.outcome == "PERMISSION_DENIED"]


@pytest.mark.slow
def test_a_limited_credential_creates_operates_and_deletes(google: FakeGoogle) -> None:
    pool = a_pool(nodeCount=1, minNodeCount=0, maxNodeCount=2)
    cloud = a_cloud(google, pool, direct=False)
    limit(google, *CALLS)
    assert (cloud.plan().refused, cloud.plan().warnings) == ((), ())
    assert cloud.objects
    limit(google, "create", "operate")
    run(cloud.create_all())
    limit(google, "operate")
    cloud.pools = [a_pool(nodeCount=1, minNodeCount=0, maxNodeCount=3)]
    run(cloud.create_all())
    planted = [
        name
        for kind in get_args(Kind)
        for name in google.plant_leftover(cloud.cluster_name, kind)
    ]
    limit(google, "operate", "delete")
    cloud.emptied = True
    with pytest.raises(Dependency):
        # Leftovers are in the network.
        run(cloud.delete_all())
    while cloud.sweep():
        continue
    run(cloud.delete_all())
    assert refused(google) == []
    # Disks of users, and objects without evidence of their cluster, stay.
    assert set(google.remains()) <= set(planted)
    deleted = {call.name for call in google.ledger().calls()} & DELETIONS
    assert deleted == DELETIONS


@pytest.mark.slow
@pytest.mark.parametrize("lacking", CALLS)
def test_the_check_names_the_permissions_and_the_role_that_is_missing(
    google: FakeGoogle, lacking: str
) -> None:
    cloud = a_cloud(google, a_pool(), direct=False)
    others = [name for name in CALLS if name != lacking]
    limit(google, *others)
    held = {each for name in others for each in permissions_of(name)}
    with pytest.raises(PermissionDenied) as caught:
        cloud.plan()
    missing = sorted(set(permissions_of(lacking)) - held)
    assert caught.value.message == (
        f"the credential lacks {', '.join(missing)} in project {google.project}; grant it "
        f"the custom roles of deploy/clouds/gcp/{lacking}.yaml"
    )
    assert google.remains() == []
