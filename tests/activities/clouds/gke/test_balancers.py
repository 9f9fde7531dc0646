"""Load balancers of GKE's own controller, whose names begin with `k8s2-`."""

import pytest

from api_types.messages.clouds import AuditCloud
from fakes.gcp.calls.faults import Kind
from fakes.gcp.fake import FakeGoogle
from tests.activities.clouds.builders import a_pool
from tests.activities.clouds.gke.cloud import REGION, Cloud, a_cloud, run

PARTS = {
    "ForwardingRule": 1,
    "BackendService": 1,
    "RegionHealthCheck": 1,
    "NetworkEndpointGroup": 1,
    "InstanceGroup": 1,
    "Firewall": 2,
}


@pytest.fixture
def cloud(google: FakeGoogle) -> Cloud:
    cloud = a_cloud(google, a_pool())
    run(cloud.create_all())
    return cloud


def planted(cloud: Cloud, kind: Kind = "backend_service_balancer") -> list[str]:
    return cloud.google.plant_leftover(cloud.cluster_name, kind)


def parts(cloud: Cloud, *, ours: bool) -> dict[str, int]:
    """Count the leftovers without planned objects by kind."""
    kinds = [each.kind for each in cloud.audit() if not each.key and each.ours is ours]
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


def test_a_load_balancer_of_the_gateway_is_ours_and_swept(cloud: Cloud) -> None:
    planted(cloud)
    assert (parts(cloud, ours=True), parts(cloud, ours=False)) == (PARTS, {})
    run(cloud.delete(cloud.object("pool/gpu")))
    run(cloud.delete(cloud.object("cluster")))
    for _ in PARTS:
        cloud.sweep()
    assert parts(cloud, ours=True) == {}
    run(cloud.delete_all())
    assert cloud.google.remains() == []


def test_a_load_balancer_of_users_stays_unless_the_cluster_was_emptied(
    cloud: Cloud,
) -> None:
    planted(cloud, "user_balancer")
    assert parts(cloud, ours=False) == {
        kind: count for kind, count in PARTS.items() if kind != "InstanceGroup"
    }
    cloud.emptied = True
    assert (parts(cloud, ours=True), parts(cloud, ours=False)) == (PARTS, {})


def test_a_load_balancer_of_users_keeps_the_machines_that_it_serves(
    cloud: Cloud,
) -> None:
    """Without container-native load balancing, it serves the instance group."""
    names = planted(cloud, "user_balancer")
    (backend,) = (name for name in names if "/backendServices/" in name)
    (machines,) = (name for name in names if "/instanceGroups/" in name)
    served = [{"group": f"https://x/compute/v1/{machines}"}]
    cloud.google.object_of(backend)["backends"] = served
    assert parts(cloud, ours=False)["InstanceGroup"] == 1


def test_a_load_balancer_without_groups_is_found_by_its_firewall_rule(
    cloud: Cloud,
) -> None:
    names = planted(cloud)
    (backend,) = (name for name in names if "/backendServices/" in name)
    cloud.google.object_of(backend)["backends"] = []
    for name in names:
        if "Groups/" in name:
            cloud.google.remove(name)
    found = parts(cloud, ours=True)
    assert (found["ForwardingRule"], found["BackendService"]) == (1, 1)


def test_a_firewall_rule_does_not_make_the_load_balancer_of_others_ours(
    cloud: Cloud,
) -> None:
    """Others may write firewall rules in the network, with any name."""
    google = cloud.google
    names = planted(cloud)
    other = f"projects/{google.project}/global/networks/default"
    for name in names:
        if "Groups/" in name:
            google.object_of(name)["network"] = f"https://x/compute/v1/{other}"
    assert parts(cloud, ours=True).keys() == {"Firewall"}


LONG = "inference-of-the-platform-team"
NODES = [("gke-inference-of-the-system-1a2b-0000", True), ("gke-other-gpu-1-2", False)]


@pytest.mark.parametrize(("node", "ours"), NODES)
def test_nodes_of_a_cluster_with_a_long_name_are_recognized(
    google: FakeGoogle, node: str, ours: bool
) -> None:
    """GKE shortens the names of nodes, which then lack the end of the cluster's name."""
    cloud = a_cloud(google)
    account = cloud.account.model_copy(update={"cluster": LONG})
    base = cloud.provider.cloud_cluster(account)
    root, compute = f"projects/{google.project}", "https://x/compute/v1"
    mark = (
        '{"kubernetes.io/service-name":"envoy-gateway-system/envoy-modelplane-system"}'
    )
    network = google.plant(f"{root}/global/networks/{base}")
    google.plant(
        f"{root}/global/firewalls/k8s-fw-a1",
        network=f"{compute}/{network}",
        description=mark,
    )
    pool = google.plant(
        f"{root}/regions/{REGION}/targetPools/a1",
        instances=[f"{compute}/{root}/zones/europe-west4-a/instances/{node}"],
        description=mark,
    )
    google.plant(
        f"{root}/regions/{REGION}/forwardingRules/a1",
        target=f"{compute}/{pool}",
        description=mark,
    )
    order = AuditCloud(account=account, cloud_cluster=base, keys=[], emptied=True)
    found = {each.kind for each in cloud.provider.audit(order) if each.ours}
    assert ("ForwardingRule" in found, "TargetPool" in found) == (ours, ours)
