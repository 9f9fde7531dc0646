"""Each fault of the script, as a client meets it."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from google.api_core import exceptions
from google.cloud.container_v1 import ClusterManagerClient as Container

from fakes.gcp.calls.faults import (
    ConcurrentOperation,
    DependencyRefuses,
    EtagRace,
    ForeignOwner,
    GcpFault,
    HalfDeleted,
    Invisible,
    LateEffect,
    Leak,
    LoseAnswer,
    OperationFails,
    Refuse,
    RevokeCredential,
    Slow,
    StockOut,
    TerminalState,
    TooManyRequests,
    Vanish,
)
from fakes.gcp.calls.random_faults import random_faults
from fakes.gcp.clients import Clients
from fakes.gcp.fake import FakeGoogle
from tests.fakes.gcp.objects import REGION, a_cluster, a_pool, plant_network
from tests.random_cases import generator

pytestmark = pytest.mark.slow

_CREATE_POOL = "container.create_node_pool"


@pytest.fixture
def http(google: FakeGoogle) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=f"{google.compute_url}/compute/v1/projects/{google.project}",
        timeout=60,
    ) as client:
        yield client


@pytest.fixture
def account(google: FakeGoogle, clients: Clients) -> str:
    request = {"name": f"projects/{google.project}", "account_id": "mp-0a1b2c3d"}
    return str(clients.iam.create_service_account(request=request).name)


def error_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["errors"][0]["reason"]


def created(google: FakeGoogle, container: Container, parent: str) -> str:
    plant_network(google)
    container.create_cluster(parent=parent, cluster=a_cluster())
    return f"{parent}/clusters/prod"


def test_the_first_calls_are_throttled(
    google: FakeGoogle, container: Container, parent: str
) -> None:
    google.fault(TooManyRequests(call="container.get_server_config", times=2))
    for _ in range(2):
        with pytest.raises(exceptions.ResourceExhausted) as caught:
            container.get_server_config(name=parent)
        assert caught.value.reason == "RATE_LIMIT_EXCEEDED"
    container.get_server_config(name=parent)
    assert google.faults_left() == []


def test_compute_throttles_with_status_403(
    google: FakeGoogle, http: httpx.Client
) -> None:
    google.fault(TooManyRequests(call="compute.networks.list"))
    assert error_of(http.get("/global/networks")) == (403, "rateLimitExceeded")
    assert http.get("/global/networks").status_code == 200


@pytest.mark.parametrize("how", ["unavailable", "cut"])
def test_the_answer_is_lost_after_the_effect(
    google: FakeGoogle, container: Container, parent: str, how: Any
) -> None:
    google.fault(LoseAnswer(call="container.create_cluster", how=how))
    with pytest.raises(exceptions.ServiceUnavailable):
        created(google, container, parent)
    assert container.get_cluster(name=f"{parent}/clusters/prod").name == "prod"
    assert [
        call.outcome for call in google.ledger().calls("container.create_cluster")
    ] == ["LOST"]
    assert google.ledger().creations() == [f"{parent}/clusters/prod"]


def test_the_connection_to_compute_is_cut(
    google: FakeGoogle, http: httpx.Client
) -> None:
    google.fault(LoseAnswer(call="compute.networks.insert", how="cut"))
    with pytest.raises(httpx.RemoteProtocolError):
        http.post("/global/networks", json={"name": "prod"})
    assert http.get("/global/networks/prod").status_code == 200


def test_any_refusal_before_the_effect(
    google: FakeGoogle, clients: Clients, account: str
) -> None:
    google.fault(
        Refuse(
            call="iam.create_service_account_key",
            code="INVALID_ARGUMENT",
            message="not usable yet",
            reason="NOT_YET",
        )
    )
    with pytest.raises(exceptions.InvalidArgument, match="not usable yet") as caught:
        clients.iam.create_service_account_key(name=account)
    assert caught.value.reason == "NOT_YET"
    assert [
        call.outcome for call in google.ledger().calls("iam.create_service_account_key")
    ] == ["INVALID_ARGUMENT"]
    assert not [name for name in google.ledger().creations() if name.endswith("/keys")]


def test_a_zone_has_no_machines(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    google.fault(StockOut(zone=f"{REGION}-b"))
    container.create_node_pool(parent=cluster, node_pool=a_pool(zones=("a", "b")))
    google.finish()
    pool = container.get_node_pool(name=f"{cluster}/nodePools/gpu-l4")
    assert (pool.status.name, pool.conditions[0].code.name) == ("ERROR", "GCE_STOCKOUT")
    assert f"{REGION}-b" in pool.status_message


def test_a_created_object_is_invisible_for_some_reads(
    google: FakeGoogle, clients: Clients, http: httpx.Client
) -> None:
    google.fault(
        Invisible(call="compute.networks.insert"),
        Invisible(call="iam.create_service_account"),
    )
    http.post("/global/networks", json={"name": "prod"})
    assert [http.get("/global/networks/prod").status_code for _ in range(3)] == [
        404,
        404,
        200,
    ]
    name = str(
        clients.iam.create_service_account(
            request={"name": f"projects/{google.project}", "account_id": "mp-0a1b2c3d"}
        ).name
    )
    for _ in range(2):
        with pytest.raises(exceptions.PermissionDenied, match="may not exist"):
            clients.iam.get_service_account(name=name)
    assert clients.iam.get_service_account(name=name).name == name


def test_an_api_is_refused_for_a_while_after_it_was_enabled(
    google: FakeGoogle, clients: Clients
) -> None:
    google.fault(Invisible(call="serviceusage.enable_service", reads=1))
    clients.service_usage.enable_service(
        request={"name": f"projects/{google.project}/services/file.googleapis.com"}
    ).result(timeout=30)
    with pytest.raises(exceptions.PermissionDenied):
        clients.filestore.get_instance(
            name=f"projects/{google.project}/locations/l/instances/i"
        )
    with pytest.raises(exceptions.NotFound):
        clients.filestore.get_instance(
            name=f"projects/{google.project}/locations/l/instances/i"
        )


@pytest.mark.parametrize("effect", [False, True])
def test_an_operation_ends_with_an_error(
    google: FakeGoogle, container: Container, parent: str, cluster: str, effect: bool
) -> None:
    google.fault(OperationFails(call=_CREATE_POOL, effect=effect))
    operation = container.create_node_pool(parent=cluster, node_pool=a_pool())
    google.finish()
    done = container.get_operation(name=f"{parent}/operations/{operation.name}")
    assert (done.status.name, done.error.message) == (
        "DONE",
        "An internal error has occurred.",
    )
    assert container.get_node_pool(name=f"{cluster}/nodePools/gpu-l4").status.name == (
        "RUNNING" if effect else "ERROR"
    )


def test_a_network_does_not_exist_if_its_operation_failed(
    google: FakeGoogle, http: httpx.Client
) -> None:
    google.fault(OperationFails(call="compute.networks.insert"))
    name = http.post("/global/networks", json={"name": "prod"}).json()["name"]
    google.finish()
    operation = http.get(f"/global/operations/{name}").json()
    assert (operation["status"], operation["error"]["errors"][0]["code"]) == (
        "DONE",
        "INTERNAL_ERROR",
    )
    assert http.get("/global/networks/prod").status_code == 404


def test_google_begins_an_operation_first(
    google: FakeGoogle, container: Container, parent: str, cluster: str
) -> None:
    google.fault(ConcurrentOperation(call=_CREATE_POOL, reads=2))
    with pytest.raises(exceptions.FailedPrecondition, match="incompatible operation"):
        container.create_node_pool(parent=cluster, node_pool=a_pool())
    kinds = [
        each.operation_type.name
        for each in container.list_operations(parent=parent).operations
    ]
    assert kinds == ["CREATE_CLUSTER", "UPGRADE_MASTER"]
    container.create_node_pool(parent=cluster, node_pool=a_pool())


def test_an_object_vanishes_between_two_reads(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    google.fault(Vanish(call="container.get_cluster", skip=1))
    container.get_cluster(name=cluster)
    with pytest.raises(exceptions.NotFound):
        container.get_cluster(name=cluster)
    assert not [
        name
        for name in google.objects()
        if name.startswith(cluster) or "/firewalls/" in name
    ]


def test_the_operation_on_a_vanished_object_is_gone_too(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    container.create_node_pool(parent=cluster, node_pool=a_pool("one"))
    google.remove(f"{cluster}/nodePools/one")
    container.create_node_pool(parent=cluster, node_pool=a_pool("two"))


def test_another_owner_takes_the_name_of_a_cluster(
    google: FakeGoogle, container: Container, parent: str
) -> None:
    google.fault(ForeignOwner())
    with pytest.raises(exceptions.AlreadyExists):
        created(google, container, parent)
    assert dict(
        container.get_cluster(name=f"{parent}/clusters/prod").resource_labels
    ) == {"owner": "another"}


def test_another_owner_takes_the_name_of_a_pool(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    google.fault(ForeignOwner())
    with pytest.raises(exceptions.AlreadyExists):
        container.create_node_pool(parent=cluster, node_pool=a_pool())
    pool = container.get_node_pool(name=f"{cluster}/nodePools/gpu-l4")
    assert dict(pool.config.resource_labels) == {"owner": "another"}


def test_another_owner_takes_the_name_of_a_network(
    google: FakeGoogle, http: httpx.Client
) -> None:
    google.fault(ForeignOwner())
    assert (
        http.post(
            "/global/networks?requestId=1",
            json={"name": "n", "labels": {"owner": "us"}},
        ).status_code
        == 409
    )
    found = http.get("/global/networks/n").json()
    assert (found["description"], found.get("labels")) == (
        "made by another owner",
        None,
    )


def test_another_owner_takes_the_name_of_an_account(
    google: FakeGoogle, clients: Clients
) -> None:
    google.fault(ForeignOwner())
    request = {
        "name": f"projects/{google.project}",
        "account_id": "mp-0a1b2c3d",
        "service_account": {"description": "ours"},
    }
    with pytest.raises(exceptions.AlreadyExists):
        clients.iam.create_service_account(request=request)
    name = f"projects/-/serviceAccounts/mp-0a1b2c3d@{google.project}.iam.gserviceaccount.com"
    assert (
        clients.iam.get_service_account(name=name).description
        == "made by another owner"
    )


def test_a_cluster_ends_in_a_terminal_state(
    google: FakeGoogle, container: Container, parent: str
) -> None:
    google.fault(
        TerminalState(
            call="container.create_cluster",
            condition="GKE_SERVICE_ACCOUNT_DELETED",
            message="no account",
        )
    )
    name = created(google, container, parent)
    google.finish()
    broken = container.get_cluster(name=name)
    assert (
        broken.status.name,
        broken.conditions[0].code.name,
        broken.conditions[0].message,
    ) == (
        "ERROR",
        "GKE_SERVICE_ACCOUNT_DELETED",
        "no account",
    )
    container.delete_cluster(name=name)
    google.finish()
    assert not [each for each in google.objects() if "/clusters/" in each]


def test_a_dependency_refuses_deletions(google: FakeGoogle, http: httpx.Client) -> None:
    google.plant(f"projects/{google.project}/global/networks/prod")
    google.fault(DependencyRefuses(call="compute.networks.delete", times=2))
    for _ in range(2):
        assert error_of(http.delete("/global/networks/prod")) == (
            400,
            "resourceInUseByAnotherResource",
        )
    assert http.delete("/global/networks/prod").status_code == 200


@pytest.mark.parametrize(
    ("kind", "folder"),
    [
        ("address", "addresses"),
        ("backend_service", "backendServices"),
        ("disk", "disks"),
        ("filestore", "instances"),
        ("firewall", "firewalls"),
        ("forwarding_rule", "forwardingRules"),
        ("health_check", "healthChecks"),
        ("neg", "networkEndpointGroups"),
        ("target_pool", "targetPools"),
    ],
)
def test_something_of_a_deleted_cluster_stays(
    google: FakeGoogle, container: Container, cluster: str, kind: Any, folder: str
) -> None:
    google.fault(Leak(kind=kind))
    container.delete_cluster(name=cluster)
    google.finish()
    assert [name for name in google.remains() if f"/{folder}/" in name]
    assert cluster not in google.remains()


def test_the_credential_is_revoked_for_some_calls(
    google: FakeGoogle, clients: Clients
) -> None:
    google.fault(RevokeCredential(call="resourcemanager.*", calls=2))
    project = f"projects/{google.project}"
    for _ in range(2):
        with pytest.raises(exceptions.Unauthenticated):
            clients.projects.get_iam_policy(resource=project)
    clients.projects.get_iam_policy(resource=project)


def test_a_create_is_answered_too_late_and_succeeds(
    google: FakeGoogle, container: Container, parent: str
) -> None:
    google.fault(LateEffect(call="container.create_cluster", later=2))
    with pytest.raises(exceptions.DeadlineExceeded):
        created(google, container, parent)
    for _ in range(2):
        with pytest.raises(exceptions.NotFound):
            container.get_cluster(name=f"{parent}/clusters/prod")
    assert (
        container.get_cluster(name=f"{parent}/clusters/prod").status.name
        == "PROVISIONING"
    )
    assert google.ledger().creations() == [f"{parent}/clusters/prod"]


def test_a_late_create_finds_the_second_one(
    google: FakeGoogle, container: Container, parent: str
) -> None:
    google.fault(LateEffect(call="container.create_cluster", later=1))
    with pytest.raises(exceptions.DeadlineExceeded):
        created(google, container, parent)
    container.create_cluster(parent=parent, cluster=a_cluster())
    container.get_cluster(name=f"{parent}/clusters/prod")
    outcomes = [
        call.outcome for call in google.ledger().calls("container.create_cluster")
    ]
    assert outcomes == ["DEADLINE_EXCEEDED", "OK", "ALREADY_EXISTS"]


def test_a_late_effect_has_none_of_the_faults_of_the_call_before(
    google: FakeGoogle, http: httpx.Client
) -> None:
    google.fault(
        LateEffect(target="*/late", later=1), OperationFails(target="*/failing")
    )
    assert http.post("/global/networks", json={"name": "late"}).status_code == 504
    http.post("/global/networks", json={"name": "failing"})
    http.get("/global/networks")
    google.finish()
    assert google.remains() == [f"projects/{google.project}/global/networks/late"]


def test_a_late_effect_after_a_repeated_call_is_recorded_as_late(
    google: FakeGoogle, http: httpx.Client
) -> None:
    google.fault(LateEffect(target="*/late", later=1))
    http.post("/global/networks?requestId=1", json={"name": "prod"})
    http.post("/global/networks", json={"name": "late"})
    http.post("/global/networks?requestId=1", json={"name": "prod"})
    http.get("/global/networks")
    assert [call.outcome for call in google.ledger().calls("*.insert")] == [
        "OK",
        "DEADLINE_EXCEEDED",
        "REPEATED",
        "LATE",
    ]


def test_late_effects_are_finished_with_all_else_and_forgotten_by_a_reset(
    google: FakeGoogle, http: httpx.Client
) -> None:
    google.fault(LateEffect(call="compute.networks.insert", later=100, times=2))
    http.post("/global/networks", json={"name": "one"})
    google.finish()
    assert google.remains() == [f"projects/{google.project}/global/networks/one"]
    http.post("/global/networks", json={"name": "two"})
    google.reset()
    google.finish()
    assert google.remains() == []


def test_a_policy_is_changed_between_read_and_write(
    google: FakeGoogle, clients: Clients
) -> None:
    google.fault(EtagRace(call="resourcemanager.projects.set_iam_policy"))
    project = f"projects/{google.project}"
    policy = clients.projects.get_iam_policy(resource=project)
    with pytest.raises(exceptions.Aborted):
        clients.projects.set_iam_policy(request={"resource": project, "policy": policy})
    assert google.members("roles/viewer") == ["user:other@example.com"]


def test_a_cluster_is_half_deleted_and_can_be_deleted_again(
    google: FakeGoogle, container: Container, parent: str, cluster: str
) -> None:
    google.fault(HalfDeleted())
    operation = container.delete_cluster(name=cluster)
    google.finish()
    assert (
        container.get_operation(name=f"{parent}/operations/{operation.name}").error.code
        != 0
    )
    left = container.get_cluster(name=cluster)
    assert (left.status.name, list(left.node_pools)) == ("ERROR", [])
    container.delete_cluster(name=cluster)
    google.finish()
    assert not [name for name in google.remains() if "clusters" in name]


def test_a_slow_answer_holds_no_other(
    google: FakeGoogle, clients: Clients, parent: str, eventually: Callable[..., None]
) -> None:
    google.fault(Slow(call="container.get_server_config", seconds=1))
    slow = threading.Thread(
        target=lambda: clients.container.get_server_config(name=parent)
    )
    slow.start()
    eventually(google.faults_left, equals=[])
    clients.projects.get_iam_policy(resource=f"projects/{google.project}")
    slow.join()
    assert [call.method for call in google.ledger().calls()] == [
        "get_iam_policy",
        "get_server_config",
    ]


def test_a_call_that_its_client_gave_up_takes_effect(
    google: FakeGoogle, clients: Clients, eventually: Callable[..., None]
) -> None:
    google.fault(Slow(call="iam.create_service_account", seconds=0.5))
    request = {"name": f"projects/{google.project}", "account_id": "mp-0a1b2c3d"}
    with pytest.raises(exceptions.DeadlineExceeded):
        clients.iam.create_service_account(request=request, timeout=0.1)
    eventually(lambda: len(google.ledger().creations()), equals=1)


def test_a_fault_counts_only_matching_calls_and_skips_the_first(
    google: FakeGoogle, container: Container, cluster: str
) -> None:
    google.fault(
        TooManyRequests(call="container.get_*", target="*/nodePools/system", skip=1)
    )
    container.get_cluster(name=cluster)
    container.get_node_pool(name=f"{cluster}/nodePools/system")
    with pytest.raises(exceptions.ResourceExhausted):
        container.get_node_pool(name=f"{cluster}/nodePools/system")
    google.fault(TooManyRequests())
    google.clear_faults()
    container.get_cluster(name=cluster)


def test_random_faults_are_the_same_for_the_same_seed() -> None:
    def drawn() -> list[GcpFault]:
        return random_faults(generator(), 200)

    assert drawn() == drawn()
    assert len({type(fault) for fault in drawn()}) >= 14
