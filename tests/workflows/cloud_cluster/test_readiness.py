"""Which objects a cluster needs to be ready, and the state of every other object."""

from datetime import timedelta
from typing import Any

import pytest

from api_types import clock
from api_types.errors import ActionRequiredError, ModelplaneError, PermanentError
from api_types.messages.clouds import (
    CLUSTER_KEY,
    CloudHealth,
    CloudObjectShown,
    CloudObjectState,
    CloudProblem,
)
from tests.activities.clouds.builders import UID, a_pool, an_eks_pool, eks, gke
from tests.workflows.cloud_cluster.decided import T0, Decided, ready
from tests.workflows.cloud_cluster.test_graph import a_state, objects_of
from workflows.cloud_cluster import readiness, shown
from workflows.cloud_cluster.next_steps import next_step
from workflows.cloud_cluster.state import CloudState
from workflows.entity.failures import Failure

MINUTE = timedelta(minutes=1)
NO_MACHINES = Failure("CapacityUnavailable", "zone a: GCE_STOCKOUT")
DEGRADED = CloudHealth(
    error="CapacityUnavailable",
    code="GCE_STOCKOUT",
    text="status RUNNING_WITH_ERROR: GCE_STOCKOUT: no machines",
    lacks_nodes=True,
)
NEXT = (
    "wait for machines, or use other zones, another machine type or another capacity "
    "reservation"
)


def at(delay: timedelta = timedelta()) -> str:
    return clock.timestamp(T0 + delay)


def state_of(cluster: Decided, key: str) -> CloudObjectState:
    """Return the reported state of an object."""
    states = readiness.states_of(cluster.state, cluster.calls.keys)
    (found,) = [each for each in states if each.key == key]
    return found


# Ready

NEEDED = {
    "GKE": {"net/vpc", "net/subnet", "iam/sa", "cluster", "conn", "nodes/system"},
    "EKS": {
        *("net/vpc", "net/subnets", "net/igw", "net/eip", "net/nat"),
        *("net/routes-public", "net/routes-private", "iam/cluster", "iam/node"),
        *("cluster", "access/50ac38d1", "conn", "pool/system", "nodes/system"),
        *("addon/vpc-cni", "addon/kube-proxy", "addon/coredns"),
    },
}
PLANNED = {
    "GKE": gke(a_pool("gpu"), a_pool("efa")),
    "EKS": eks(an_eks_pool("gpu"), an_eks_pool("efa")),
}


@pytest.mark.parametrize("provider", NEEDED)
def test_a_cluster_is_ready_with_its_control_plane_system_pool_and_one_gpu_pool(
    provider: str,
) -> None:
    objects = objects_of(PLANNED[provider])

    def without(*keys: str) -> CloudState:
        state = a_state(provider, objects)
        for key in keys:
            state.inventory[key].made = ""
        return state

    needed = {each.key for each in objects if not readiness.is_ready(without(each.key))}
    assert needed == NEEDED[provider]
    assert not readiness.is_ready(without("pool/gpu", "pool/efa"))
    assert readiness.is_ready(without())
    assert readiness.is_complete(without())
    assert not readiness.is_complete(without("pool/gpu"))


def test_a_degraded_pool_is_no_reason_to_call_a_new_cluster_ready() -> None:
    cluster = Decided()
    cluster.plan()
    while others := [key for key in cluster.calls.keys if key != "pool/gpu"]:
        cluster.end(others[0], "Ready")
    cluster.end("pool/gpu", "Ready", health=DEGRADED)
    assert not readiness.is_ready(cluster.state)
    look(cluster, health=None)
    assert readiness.is_ready(cluster.state)


@pytest.mark.parametrize(
    ("refused_at", "is_ready"), [("pool b", True), ("", False)], ids=["a pool", "all"]
)
def test_a_refused_pool_holds_up_no_other_and_a_refused_spec_is_not_ready(
    refused_at: str, is_ready: bool
) -> None:
    problem = CloudProblem(reason="InvalidInput", at=refused_at, text="no such zone")
    cluster = ready()
    cluster.order(a_pool())
    cluster.plan(cluster.wanted((problem,)))
    assert readiness.is_ready(cluster.state) == is_ready


def test_a_cluster_whose_only_pool_is_refused_is_not_ready() -> None:
    problem = CloudProblem(reason="InvalidNodePool", at="pool gpu", text="no class")
    cluster = Decided()
    plan = cluster.wanted((problem,))
    objects = [each for each in plan.objects if not each.pool]
    cluster.plan(plan.model_copy(update={"objects": objects}))
    cluster.make_all()
    assert not readiness.is_ready(cluster.state)
    assert readiness.states_of(cluster.state, []) == [
        CloudObjectState(
            pool="gpu",
            lacks_nodes=True,
            reason="InvalidNodePool",
            message="no class",
            since=at(),
            next_step="change the spec as the message says",
        )
    ]


def test_an_existing_pool_that_is_refused_keeps_its_nodes_and_the_time_of_the_refusal() -> (
    None
):
    cluster = ready(a_pool("gpu"), a_pool("b"))
    problem = CloudProblem(reason="InvalidNodePool", at="pool b", text="no block")
    for _ in range(2):
        plan = cluster.wanted((problem,))
        objects = [each for each in plan.objects if each.pool != "b"]
        cluster.order(a_pool("gpu"), a_pool("b"))
        cluster.plan(plan.model_copy(update={"objects": objects}))
        cluster.after(MINUTE)
    found = state_of(cluster, "pool/b")
    assert (found.reason, found.since, found.lacks_nodes, found.was_ready) == (
        "InvalidNodePool",
        at(),
        False,
        True,
    )


# The state of each pool


def look(cluster: Decided, phase: Any = "Ready", **more: Any) -> None:
    """Let a check find the pool in this state."""
    seen = {"key": "pool/gpu", "kind": "NodePool", "name": "gpu", **more}
    cluster.entries.observed(CloudObjectShown(phase=phase, **seen), None)
    cluster.go()


def test_a_pool_without_machines_keeps_its_problem_and_its_time_during_every_attempt() -> (
    None
):
    cluster = Decided(a_pool("other"), a_pool("gpu"))
    cluster.plan()
    while "pool/gpu" not in cluster.calls.keys:
        cluster.end(cluster.calls.keys[0], "Ready")
    assert (
        state_of(cluster, "pool/gpu").message
        == "waits for operation DONE, status RUNNING"
    )
    cluster.after(5 * MINUTE)
    cluster.calls.failed("pool/gpu", NO_MACHINES)
    cluster.make_all()
    expected = CloudObjectState(
        key="pool/gpu",
        kind="NodePool",
        name="gpu",
        pool="gpu",
        lacks_nodes=True,
        reason=NO_MACHINES.type,
        message=NO_MACHINES.message,
        since=at(5 * MINUTE),
        next_step=NEXT,
        retry_at=at(15 * MINUTE),
    )
    assert state_of(cluster, "pool/gpu") == expected
    assert readiness.is_ready(cluster.state)
    cluster.after(10 * MINUTE)
    assert cluster.calls.keys == ["pool/gpu"]
    again = {"phase": "Creating", "retry_at": at(15 * MINUTE)}
    assert state_of(cluster, "pool/gpu") == expected.model_copy(update=again)
    cluster.end("pool/gpu", "Ready")
    found = state_of(cluster, "pool/gpu")
    assert (found.ready, found.reason, found.lacks_nodes) == (True, "", False)


def test_other_objects_have_a_state_while_they_have_a_problem_or_are_not_there() -> (
    None
):
    cluster = Decided()
    cluster.plan()
    cluster.calls.failed("api/file", Failure("PermissionDenied", "lacks x"))
    cluster.make_all()
    cluster.state.was_ready = readiness.is_ready(cluster.state)
    states = readiness.states_of(cluster.state, [])
    assert [(each.key, each.reason, each.message) for each in states] == [
        ("pool/gpu", "", ""),
        ("api/file", "PermissionDenied", "lacks x"),
        (
            "sc",
            "",
            "waits for api/file (Service file.googleapis.com)",
        ),
    ]
    assert readiness.ready_text(cluster.state, []) == (
        "8 of 10 cloud objects are ready; not yet: api/file, sc"
    )


# Health


def warnings(cluster: Decided) -> int:
    """Return how many events say that the pool is degraded."""
    events = cluster.state.events
    return sum(each.count for each in events if each.reason == DEGRADED.error)


def test_trouble_of_a_ready_pool_is_shown_with_code_and_next_step_until_it_recovers() -> (
    None
):
    cluster = ready()
    cluster.after(7 * MINUTE)
    look(cluster, health=DEGRADED)
    cluster.after(MINUTE)
    look(cluster, health=DEGRADED.model_copy(update={"text": "other words"}))
    healthy = CloudObjectState(
        key="pool/gpu",
        kind="NodePool",
        name="gpu",
        pool="gpu",
        phase="Ready",
        ready=True,
        was_ready=True,
    )
    problem = {
        "phase": "Degraded",
        "ready": False,
        "lacks_nodes": True,
        "reason": DEGRADED.error,
        "code": DEGRADED.code,
        "message": "other words",
        "since": at(7 * MINUTE),
        "next_step": NEXT,
    }
    assert state_of(cluster, "pool/gpu") == healthy.model_copy(update=problem)
    assert shown.trouble(cluster.state)[1] == (
        f"CapacityUnavailable: pool/gpu (NodePool gpu): other words; next step: {NEXT}"
    ), "the message of ClusterReady has the step of CloudObjectsReady"
    assert cluster.calls.keys == [], "the pool is not repaired by deletion"
    look(cluster, health=None, message="without zone b")
    assert state_of(cluster, "pool/gpu") == healthy
    assert cluster.entry("pool/gpu").message == "without zone b"
    assert shown.trouble(cluster.state) == ("", "")
    assert cluster.reasons[-2:] == [DEGRADED.error, "CloudObjectRecovered"]
    assert warnings(cluster) == 1, "other words for the same problem are no event"
    look(cluster, health=DEGRADED)
    look(cluster, health=DEGRADED.model_copy(update={"code": "STOPPED"}))
    assert warnings(cluster) == 3
    assert state_of(cluster, "pool/gpu").since == at(8 * MINUTE)


def test_a_failed_change_of_a_degraded_pool_is_one_problem() -> None:
    cluster = ready()
    look(cluster, "Differs", message="counts", health=DEGRADED)
    cluster.calls.failed("pool/gpu", NO_MACHINES)
    assert cluster.entry("pool/gpu").health == DEGRADED
    next_step = state_of(cluster, "pool/gpu").next_step
    assert shown.trouble(cluster.state)[1] == (
        f"CapacityUnavailable: pool/gpu (NodePool gpu): {NO_MACHINES.message}; "
        f"next step: {next_step}"
    )


@pytest.mark.parametrize("key", [CLUSTER_KEY, "net/vpc"])
def test_trouble_of_another_object_has_a_state_and_leaves_the_cluster_usable(
    key: str,
) -> None:
    cluster = ready()
    health = DEGRADED.model_copy(update={"error": "CloudObjectBroken"})
    look(cluster, key=key, health=health)
    assert state_of(cluster, key).next_step == "remove the cause at the cloud"
    assert shown.report_of(cluster.state, UID, []).usable


def test_an_object_that_a_check_cannot_read_is_shown_and_keeps_its_nodes() -> None:
    cluster = ready()
    healthy = state_of(cluster, "pool/gpu")
    for minutes in (7, 8):
        cluster.after(minutes * MINUTE)
        look(cluster, "Unknown", message="PermissionDenied: container.nodePools.get")
    problem = {
        "phase": "Unknown",
        "ready": False,
        "reason": "NotObserved",
        "message": "PermissionDenied: container.nodePools.get",
        "since": at(7 * MINUTE),
        "next_step": "grant the permission or restore the tags if the message names any; "
        "otherwise none: Modelplane checks again",
    }
    assert state_of(cluster, "pool/gpu") == healthy.model_copy(update=problem)
    assert cluster.calls.keys == [], "nothing is created or deleted"
    assert shown.report_of(cluster.state, UID, []).usable
    look(cluster)
    assert state_of(cluster, "pool/gpu") == healthy


def test_a_broken_pool_has_the_cause_that_the_cloud_names() -> None:
    cluster = ready()
    look(cluster, health=DEGRADED)
    look(cluster, "Broken", message="no machines", cause="QuotaExceeded")
    found = state_of(cluster, "pool/gpu")
    assert (found.reason, found.code, found.lacks_nodes, found.next_step) == (
        "QuotaExceeded",
        "",
        True,
        "request a higher quota from the cloud, or lower the counts",
    )


def test_a_pool_that_cannot_be_changed_keeps_its_nodes() -> None:
    cluster = ready()
    look(cluster, "Differs", message="machine type")
    cluster.calls.failed("pool/gpu", Failure("ReplaceRequired", "machine type"))
    found = state_of(cluster, "pool/gpu")
    assert (found.reason, found.lacks_nodes) == ("ReplaceRequired", False)


def test_another_spec_forgets_the_problem_of_the_earlier_one() -> None:
    cluster = ready()
    look(cluster, "Differs", message="counts")
    cluster.calls.failed("pool/gpu", NO_MACHINES)
    cluster.order(a_pool(maxNodeCount=3))
    cluster.plan()
    assert state_of(cluster, "pool/gpu").reason == ""


def test_after_a_lost_state_a_pool_that_was_never_ready_is_created_as_a_new_one() -> (
    None
):
    cluster = Decided(a_pool("other"), a_pool("gpu"))
    assert cluster.state.order is not None
    told = {"was_usable": True, "was_ready": True, "never_ready": ["pool/gpu"]}
    cluster.state.order = cluster.state.order.model_copy(update=told)
    cluster.plan()
    assert {
        key: entry.was_ready
        for key, entry in cluster.state.inventory.items()
        if entry.object.pool
    } == {"pool/other": True}


def test_every_error_that_a_person_has_to_solve_has_a_next_step_of_its_own() -> None:
    automatic = next_step("Busy", "prod")
    assert automatic == "none: Modelplane tries again"
    unnamed = {
        error.__name__
        for error in all_errors(ActionRequiredError, PermanentError)
        if next_step(error.__name__, "prod") == automatic
    }
    # These errors are not about an object at a cloud.
    assert unnamed == {
        "NoControlCluster",
        "StillThere",
        "StorageClassMissing",
        "Conflict",
    }


def all_errors(*roots: type[ModelplaneError]) -> list[type[ModelplaneError]]:
    found = [each for root in roots for each in root.__subclasses__()]
    return [*found, *all_errors(*found)] if found else []


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("pool/gpu", "set the old value again, or add a pool under another name and"),
        ("cluster", "set the old value again, or create another cluster and delete"),
        ("net/vpc", "create another cluster, and delete this one"),
    ],
)
def test_the_next_step_for_an_object_that_cannot_be_replaced_depends_on_the_object(
    key: str, expected: str
) -> None:
    entry = ready(a_pool("gpu")).state.inventory[key]
    assert next_step("ReplaceRequired", "eu-1", entry).startswith(expected)
