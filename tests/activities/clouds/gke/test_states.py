"""States of clusters and pools at GKE: stock-outs, quotas, failed operations and broken
objects.
"""

import shlex

import pytest
from google.cloud import container_v1

from activities.clouds.gke.handlers.states import lost_labels
from activities.clouds.lifecycle.handler import HealthIssue, State
from api_types.errors import (
    CapacityUnavailable,
    CloudObjectBroken,
    ModelplaneError,
    PermissionDenied,
    QuotaExceeded,
    ServerError,
)
from api_types.labels import GCP_OWNER
from fakes.gcp.calls.faults import (
    OperationFails,
    StockOut,
    TerminalState,
    TooManyRequests,
)
from fakes.gcp.fake import FakeGoogle
from tests.activities.clouds.builders import a_pool
from tests.activities.clouds.gke.cloud import (
    Cloud,
    a_cloud,
    changes,
    cluster_of,
    pool_of,
    run,
)

pytestmark = pytest.mark.slow


def test_a_zone_without_machines_breaks_the_pool_and_nothing_else(
    google: FakeGoogle,
) -> None:
    cloud = a_cloud(google, a_pool("a"), a_pool("b", zones=["europe-west4-b"]))
    google.fault(StockOut(target="*/nodePools/a", times=2))
    for each in cloud.objects:
        if each.key != "pool/a":
            run(cloud.ensure(each))
    with pytest.raises(CapacityUnavailable, match="europe-west4-a"):
        run(cloud.ensure(cloud.object("pool/a")))
    assert cloud.epochs["pool/a"] == 2
    assert [str(cloud.looked(key).state) for key in ("cluster", "pool/b")] == [
        "Ready",
        "Ready",
    ]
    run(cloud.ensure(cloud.object("pool/a")))


def test_a_pool_that_breaks_once_is_created_again(google: FakeGoogle) -> None:
    cloud = a_cloud(google, a_pool())
    google.fault(TerminalState(call="container.create_node_pool"))
    run(cloud.create_all())
    assert cloud.epochs["pool/gpu"] == 1
    assert len(google.ledger().calls("container.create_node_pool", effective=True)) == 2


def test_a_cluster_that_breaks_twice_reports_the_reason(google: FakeGoogle) -> None:
    cloud = a_cloud(google)
    google.fault(
        TerminalState(
            call="container.create_cluster",
            message="The control plane cannot start.",
            times=2,
        )
    )
    with pytest.raises(CloudObjectBroken, match="The control plane cannot start"):
        run(cloud.create_all())


def test_the_facts_of_a_cluster_include_its_id(ready: Cloud) -> None:
    found = ready.looked("cluster")
    assert found.facts["id"] == found.id


CAUSES: list[tuple[str, type[ModelplaneError]]] = [
    ("GCE_STOCKOUT", CapacityUnavailable),
    ("GCE_QUOTA_EXCEEDED", QuotaExceeded),
    ("GKE_SERVICE_ACCOUNT_DELETED", PermissionDenied),
]


@pytest.mark.parametrize(("condition", "kind"), CAUSES)
def test_a_broken_pool_has_the_class_of_its_condition(
    ready: Cloud, condition: str, kind: type[Exception]
) -> None:
    pool = pool_of(ready)
    pool.status, pool.conditions = (
        "ERROR",
        [container_v1.StatusCondition(code=condition, message="why")],
    )
    found = ready.looked("pool/gpu")
    assert (found.state, found.cause) == (State.BROKEN, kind)
    assert "why" in found.reason


@pytest.mark.parametrize(("condition", "kind"), CAUSES)
def test_a_pool_that_runs_with_errors_is_not_torn_down(
    ready: Cloud, condition: str, kind: type[Exception]
) -> None:
    pool = pool_of(ready)
    pool.status, pool.conditions = (
        "RUNNING_WITH_ERROR",
        [container_v1.StatusCondition(code=condition, message="why")],
    )
    with pytest.raises(kind, match="why"):
        run(ready.ensure(ready.object("pool/gpu")))
    assert changes(ready) == []
    run(ready.delete_all())
    assert ready.google.remains() == []


def healthy(status: str, code: str, message: str) -> tuple[State, HealthIssue | None]:
    """Return the expected look at a pool with this status and condition."""
    error: type[ModelplaneError] = dict(CAUSES)[code]
    text = f"{code}: {message}"
    if status == "RUNNING":
        lacks = error in (CapacityUnavailable, QuotaExceeded)
        return State.READY, HealthIssue(error, code, text, lacks)
    text = f"status {status}: {text}"
    return State.DIFFERS, HealthIssue(error, code, text, lacks_nodes=True)


@pytest.mark.parametrize("code", [code for code, _ in CAUSES])
@pytest.mark.parametrize("status", ["RUNNING", "RUNNING_WITH_ERROR"])
def test_the_health_of_a_pool_has_the_code_the_words_and_whether_nodes_are_missing(
    ready: Cloud, status: str, code: str
) -> None:
    pool = pool_of(ready)
    condition = container_v1.StatusCondition(code=code, message="why")
    pool.status, pool.conditions = status, [condition]
    found = ready.looked("pool/gpu")
    assert (found.state, found.health) == healthy(status, code, "why")
    pool.status, pool.conditions = "RUNNING", []
    assert ready.looked("pool/gpu").health is None


def test_a_pool_that_runs_with_errors_lacks_nodes_although_google_names_no_condition(
    ready: Cloud,
) -> None:
    pool_of(ready).status = "RUNNING_WITH_ERROR"
    found = ready.looked("pool/gpu").health
    assert found is not None
    assert (found.code, found.lacks_nodes) == ("RUNNING_WITH_ERROR", True)


def test_the_health_of_a_cluster_is_that_of_its_conditions(ready: Cloud) -> None:
    cluster = cluster_of(ready)
    by_google = container_v1.StatusCondition(code="SET_BY_OPERATOR", message="ok")
    cluster.conditions = [by_google]
    assert ready.looked("cluster").health is None
    expiring = container_v1.StatusCondition(code="CA_EXPIRING", message="30 days")
    cluster.conditions = [by_google, expiring]
    found = ready.looked("cluster")
    issue = HealthIssue(CloudObjectBroken, "CA_EXPIRING", "CA_EXPIRING: 30 days")
    assert (found.state, found.health) == (State.READY, issue)


def test_a_degraded_cluster_reports_the_reason_and_is_kept(ready: Cloud) -> None:
    cluster = cluster_of(ready)
    cluster.status, cluster.conditions = (
        "DEGRADED",
        [container_v1.StatusCondition(code="CLOUD_KMS_KEY_ERROR", message="no key")],
    )
    with pytest.raises(PermissionDenied, match="no key"):
        run(ready.ensure(ready.object("cluster")))
    assert changes(ready) == []


@pytest.mark.parametrize("status", ["ERROR", "RUNNING_WITH_ERROR"])
def test_a_cluster_whose_system_pool_has_no_usable_nodes_is_not_ready(
    ready: Cloud, status: str
) -> None:
    pool = pool_of(ready, "system")
    pool.status, pool.conditions = (
        status,
        [container_v1.StatusCondition(code="GCE_STOCKOUT", message="no machines")],
    )
    assert ready.looked("cluster").state is State.DIFFERS
    with pytest.raises(
        CapacityUnavailable, match="pool system: GCE_STOCKOUT: no machines"
    ):
        run(ready.ensure(ready.object("cluster")))
    assert changes(ready) == []


def test_a_quota_error_that_looks_like_a_missing_right_is_recognized(
    google: FakeGoogle,
) -> None:
    cloud = a_cloud(google, a_pool())
    google.capacity.set_limit("NVIDIA_L4_GPUS", 0, "europe-west4")
    with pytest.raises(QuotaExceeded, match="NVIDIA_L4_GPUS needs 1, has 0"):
        run(cloud.create_all())
    assert str(cloud.looked("cluster").state) == "Ready"
    google.capacity.set_limit("NVIDIA_L4_GPUS", 8, "europe-west4")
    run(cloud.create_all())


def test_without_quota_for_networks_other_objects_are_created(
    google: FakeGoogle,
) -> None:
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
    [
        ("net/vpc", "compute.networks.insert"),
        ("net/subnet", "compute.subnetworks.insert"),
        ("api/file", "serviceusage.enable_service"),
    ],
)
def test_an_operation_that_failed_for_a_quota_is_started_again_later(
    google: FakeGoogle, key: str, call: str
) -> None:
    """The same request id would only return the failed operation."""
    cloud = a_cloud(google)
    google.fault(
        OperationFails(
            call=call,
            code="PERMISSION_DENIED",
            message="QUOTA_EXCEEDED: Quota 'X' exceeded",
        )
    )

    async def create() -> None:
        for each in cloud.objects:
            if each.key == key:
                with pytest.raises(QuotaExceeded, match="Quota 'X' exceeded"):
                    await cloud.ensure(each)
            await cloud.ensure(each)

    run(create())


@pytest.mark.parametrize(
    "call", ["container.create_cluster", "container.create_node_pool"]
)
def test_an_operation_that_ends_with_an_internal_error_is_repaired(
    google: FakeGoogle, call: str
) -> None:
    cloud = a_cloud(google, a_pool())
    google.fault(OperationFails(call=call))
    run(cloud.create_all())
    assert str(cloud.looked("pool/gpu").state) == "Ready"


@pytest.mark.parametrize(
    "call", ["compute.networks.insert", "compute.subnetworks.insert"]
)
def test_a_network_operation_with_an_internal_error_is_repaired(
    google: FakeGoogle, call: str
) -> None:
    cloud = a_cloud(google)
    google.fault(OperationFails(call=call))
    run(cloud.create_all())
    assert any("An internal error has occurred" in report for report in cloud.reports)


def test_a_failed_change_is_reported(ready: Cloud) -> None:
    ready.google.fault(OperationFails(call="container.set_node_pool_autoscaling"))
    ready.pools = [a_pool(nodeCount=1, minNodeCount=0, maxNodeCount=6)]
    with pytest.raises(ServerError, match="An internal error"):
        run(ready.ensure(ready.object("pool/gpu"), attempts=1))
    run(ready.ensure(ready.object("pool/gpu")))
    assert pool_of(ready).autoscaling.max_node_count == 6


def test_long_throttling_stays_transient(
    google: FakeGoogle,
) -> None:
    cloud = a_cloud(google)
    google.fault(TooManyRequests(call="compute.networks.insert", times=1000))
    with pytest.raises(Exception, match="Quota exceeded for quota metric") as caught:
        run(cloud.ensure(cloud.object("net/vpc")))
    assert type(caught.value).__name__ == "Throttled"


def test_the_command_that_restores_labels_quotes_each_value() -> None:
    node_pool = {"name": "gpu", "config": {"resource_labels": {GCP_OWNER: "d1"}}}
    given = {
        "parent": "projects/p/locations/l/clusters/c; id",
        "node_pool": node_pool,
    }
    found = lost_labels(given, {"team": "$(id) a"})
    _, command, _ = found.split("`")
    assert shlex.split(command)[4:] == [
        "gpu",
        "--cluster=c; id",
        "--location=l",
        "--project=p",
        f"--labels={GCP_OWNER}=d1,team=$(id) a",
    ]
