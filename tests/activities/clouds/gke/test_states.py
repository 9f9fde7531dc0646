"""What GKE says of clusters and pools: no machines, no quota, failed operations and broken states (spec/provisioning.md 4 and 6)."""

import pytest
from google.cloud import container_v1

from activities.clouds.lifecycle.handler import State
from api_types.errors import (
    CapacityUnavailable,
    CloudObjectBroken,
    PermissionDenied,
    QuotaExceeded,
    ServerError,
)
from testbed.clouds.gcp.calls.faults import (
    OperationFails,
    StockOut,
    TerminalState,
    Throttle,
)
from testbed.clouds.gcp.fake import FakeGoogle
from tests.activities.clouds.builders import a_pool
from tests.activities.clouds.gke.cloud import Cloud, a_cloud, changes, cluster_of, pool_of, run

pytestmark = pytest.mark.slow


def test_prv_32_a_zone_without_machines_breaks_the_pool_and_nothing_else(google: FakeGoogle) -> None:
    cloud = a_cloud(google, a_pool("a"), a_pool("b", zones=["europe-west4-b"]))
    google.fault(StockOut(target="*/nodePools/a", times=2))
    for each in cloud.objects:
        if each.key != "pool/a":
            run(cloud.ensure(each))
    with pytest.raises(CapacityUnavailable, match="europe-west4-a"):
        run(cloud.ensure(cloud.object("pool/a")))
    assert cloud.epochs["pool/a"] == 2
    assert [str(cloud.looked(key).state) for key in ("cluster", "pool/b")] == ["Ready", "Ready"]
    run(cloud.ensure(cloud.object("pool/a")))


def test_prv_33_a_pool_that_breaks_once_is_built_again(google: FakeGoogle) -> None:
    cloud = a_cloud(google, a_pool())
    google.fault(TerminalState(call="container.create_node_pool"))
    run(cloud.create_all())
    assert cloud.epochs["pool/gpu"] == 1
    assert len(google.ledger().calls("container.create_node_pool", effective=True)) == 2


def test_prv_33_a_cluster_that_breaks_twice_says_why(google: FakeGoogle) -> None:
    cloud = a_cloud(google)
    google.fault(TerminalState(call="container.create_cluster", message="The control plane cannot start.", times=2))
    with pytest.raises(CloudObjectBroken, match="The control plane cannot start"):
        run(cloud.create_all())


def test_what_is_known_of_a_cluster_has_its_id(ready: Cloud) -> None:
    found = ready.looked("cluster")
    assert found.facts["id"] == found.id


CAUSES = [("GCE_STOCKOUT", CapacityUnavailable), ("GCE_QUOTA_EXCEEDED", QuotaExceeded), ("GKE_SERVICE_ACCOUNT_DELETED", PermissionDenied)]


@pytest.mark.parametrize(("condition", "kind"), CAUSES)
def test_prv_4_2_a_broken_pool_has_the_class_of_its_condition(ready: Cloud, condition: str, kind: type[Exception]) -> None:
    pool = pool_of(ready)
    pool.status, pool.conditions = "ERROR", [container_v1.StatusCondition(code=condition, message="why")]
    found = ready.looked("pool/gpu")
    assert (found.state, found.cause) == (State.BROKEN, kind)
    assert "why" in found.reason


@pytest.mark.parametrize(("condition", "kind"), CAUSES)
def test_prv_60_a_pool_that_runs_with_errors_is_not_torn_down(ready: Cloud, condition: str, kind: type[Exception]) -> None:
    pool = pool_of(ready)
    pool.status, pool.conditions = "RUNNING_WITH_ERROR", [container_v1.StatusCondition(code=condition, message="why")]
    with pytest.raises(kind, match="why"):
        run(ready.ensure(ready.object("pool/gpu")))
    assert changes(ready) == []
    run(ready.delete_all())
    assert ready.google.remains() == []


def test_a_cluster_that_is_degraded_says_why_and_stays(ready: Cloud) -> None:
    cluster = cluster_of(ready)
    cluster.status, cluster.conditions = "DEGRADED", [container_v1.StatusCondition(code="CLOUD_KMS_KEY_ERROR", message="no key")]
    with pytest.raises(PermissionDenied, match="no key"):
        run(ready.ensure(ready.object("cluster")))
    assert changes(ready) == []


@pytest.mark.parametrize("status", ["ERROR", "RUNNING_WITH_ERROR"])
def test_prv_6_8_a_cluster_whose_system_pool_has_no_usable_nodes_is_not_ready(ready: Cloud, status: str) -> None:
    pool = pool_of(ready, "system")
    pool.status, pool.conditions = status, [container_v1.StatusCondition(code="GCE_STOCKOUT", message="no machines")]
    assert ready.looked("cluster").state is State.DIFFERS
    with pytest.raises(CapacityUnavailable, match="pool system: GCE_STOCKOUT: no machines"):
        run(ready.ensure(ready.object("cluster")))
    assert changes(ready) == []


def test_prv_31_a_quota_that_comes_as_a_missing_right_is_a_quota(google: FakeGoogle) -> None:
    cloud = a_cloud(google, a_pool())
    google.capacity.set_limit("NVIDIA_L4_GPUS", 0, "europe-west4")
    with pytest.raises(QuotaExceeded, match="NVIDIA_L4_GPUS needs 1, has 0"):
        run(cloud.create_all())
    assert str(cloud.looked("cluster").state) == "Ready"
    google.capacity.set_limit("NVIDIA_L4_GPUS", 8, "europe-west4")
    run(cloud.create_all())


def test_prv_30_without_quota_for_networks_the_rest_is_created(google: FakeGoogle) -> None:
    cloud = a_cloud(google)
    google.capacity.set_limit("NETWORKS", 1)
    with pytest.raises(QuotaExceeded, match="NETWORKS"):
        run(cloud.ensure(cloud.object("net/vpc")))
    for key in ("api/file", "iam/sa", "iam/binding"):
        run(cloud.ensure(cloud.object(key)))
    google.capacity.set_limit("NETWORKS", 15)
    run(cloud.create_all())


@pytest.mark.parametrize(
    ("key", "call"),
    [("net/vpc", "compute.networks.insert"), ("net/subnet", "compute.subnetworks.insert"), ("api/file", "serviceusage.enable_service")],
)
def test_prv_30_an_operation_that_failed_for_a_quota_is_begun_anew_later(google: FakeGoogle, key: str, call: str) -> None:
    """The same request id would only give the failed operation again."""
    cloud = a_cloud(google)
    google.fault(OperationFails(call=call, code="PERMISSION_DENIED", message="QUOTA_EXCEEDED: Quota 'X' exceeded"))

    async def create() -> None:
        for each in cloud.objects:
            if each.key == key:
                with pytest.raises(QuotaExceeded, match="Quota 'X' exceeded"):
                    await cloud.ensure(each)
            await cloud.ensure(each)

    run(create())


@pytest.mark.parametrize("call", ["container.create_cluster", "container.create_node_pool"])
def test_prv_41_an_operation_that_ends_with_an_internal_error_is_repaired(google: FakeGoogle, call: str) -> None:
    cloud = a_cloud(google, a_pool())
    google.fault(OperationFails(call=call))
    run(cloud.create_all())
    assert str(cloud.looked("pool/gpu").state) == "Ready"


@pytest.mark.parametrize("call", ["compute.networks.insert", "compute.subnetworks.insert"])
def test_prv_41_so_is_one_of_the_network(google: FakeGoogle, call: str) -> None:
    cloud = a_cloud(google)
    google.fault(OperationFails(call=call))
    run(cloud.create_all())
    assert any("An internal error has occurred" in report for report in cloud.reports)


def test_prv_41_a_change_that_fails_is_said(ready: Cloud) -> None:
    ready.google.fault(OperationFails(call="container.set_node_pool_autoscaling"))
    ready.pools = [a_pool(nodeCount=1, minNodeCount=0, maxNodeCount=6)]
    with pytest.raises(ServerError, match="An internal error"):
        run(ready.ensure(ready.object("pool/gpu"), attempts=1))
    run(ready.ensure(ready.object("pool/gpu")))
    assert pool_of(ready).autoscaling.max_node_count == 6


def test_prv_29_what_is_throttled_for_long_is_transient_to_the_end(google: FakeGoogle) -> None:
    cloud = a_cloud(google)
    google.fault(Throttle(call="compute.networks.insert", times=1000))
    with pytest.raises(Exception, match="Quota exceeded for quota metric") as caught:
        run(cloud.ensure(cloud.object("net/vpc")))
    assert type(caught.value).__name__ == "Throttled"
