"""An unstarted placement that is released is never started by a later pass.

These tests need no server.
"""

from datetime import timedelta
from typing import Any

from api_types.messages.entities import ReplicaChanged, StartedReplicas, StartReplicas
from api_types.messages.scheduling import Evict, ReplicaAccount, Resync, Revoke
from api_types.payloads.limits import PAYLOAD_BYTES_MAX, wire_size
from tests.workflows.model_deployment.exchange import (
    ENTRY,
    EVICTION,
    NOW,
    PLACEMENT,
    a_controller,
    answer,
    named,
    started,
    state_of,
)
from workflows.entity.context import EntityContext
from workflows.model_deployment.controller import DeploymentController
from workflows.model_deployment.decisions.plan import plan_answer
from workflows.model_deployment.orders import StartReplicaWorkflows
from workflows.model_deployment.state import DeploymentState, TrackedReplica

PREDECESSOR = TrackedReplica(
    uid="p",
    name="qwen-p",
    cluster="eu",
    index=0,
    entry=ENTRY,
    started=True,
    bound=True,
    deletion_reason="replaced",
)


def a_deployment_that_waits_for_a_predecessor() -> DeploymentController:
    """Return a deployment whose placement cannot be started before its predecessor has ended."""
    controller = a_controller(replicas={"p": PREDECESSOR})
    controller.next_orders({})
    controller.placed(answer(controller, PLACEMENT.model_copy(update={"after": ["p"]})))
    assert started(controller.next_orders({})) == []
    assert "r" in state_of(controller).replicas
    return controller


def after_the_predecessor(controller: DeploymentController) -> list[str]:
    """Let the predecessor end; return the replicas that are started then."""
    controller.replicas.record_report(
        ReplicaChanged(name="qwen-p", uid="p", sequence=1, phase="Gone")
    )
    return started([*controller.next_orders({}), *controller.next_orders({})])


def test_a_waiting_placement_is_started_after_its_predecessor() -> None:
    assert after_the_predecessor(a_deployment_that_waits_for_a_predecessor()) == ["r"]


def test_a_waiting_placement_that_is_released_is_never_started() -> None:
    controller = a_deployment_that_waits_for_a_predecessor()
    controller.revoke(Revoke(uid="r", epoch=1))
    assert [
        payload["uid"] for payload in named(controller.next_orders({}), "revoked")
    ] == ["r"]
    assert after_the_predecessor(controller) == []


def test_a_waiting_placement_that_is_evicted_is_released_and_never_started() -> None:
    controller = a_deployment_that_waits_for_a_predecessor()
    controller.evict(Evict(epoch=1, eviction=EVICTION))
    assert [
        payload["uid"] for payload in named(controller.next_orders({}), "revoked")
    ] == ["r"]
    assert after_the_predecessor(controller) == []


def test_a_placement_of_an_earlier_scheduler_is_void_and_reported_to_the_new_one() -> (
    None
):
    controller = a_deployment_that_waits_for_a_predecessor()
    controller.resync(Resync(epoch=2))
    assert list(state_of(controller).replicas) == ["p"]
    assert named(controller.next_orders({}), "place")[-1]["returned"] == ["r"]
    assert after_the_predecessor(controller) == []


def test_an_answer_with_a_released_placement_is_unused_and_another_one_is_requested() -> (
    None
):
    plan = plan_answer({}, answer(a_controller(), PLACEMENT), 1, "d", ["r"])
    assert (plan.create, plan.repeat) == ([], True)


def test_an_answer_of_an_earlier_scheduler_is_ignored_and_answered_with_the_epoch() -> (
    None
):
    controller = a_controller()
    controller.next_orders({})
    controller.resync(Resync(epoch=100))
    (request,) = named(controller.next_orders({}), "place")
    assert request["epoch"] == 100
    # The answer of the scheduler with the smaller epoch.
    controller.placed(answer(controller, PLACEMENT).model_copy(update={"epoch": 50}))
    orders = controller.next_orders({})
    assert (
        started(orders),
        [payload["epoch"] for payload in named(orders, "place")],
    ) == ([], [100])


def test_a_scheduler_with_a_smaller_epoch_is_told_the_greater_one_and_a_repeat_has_no_effect() -> (
    None
):
    controller = a_controller()
    controller.next_orders({})
    controller.resync(Resync(epoch=100))
    controller.next_orders({})
    controller.resync(Resync(epoch=100))
    assert named(controller.next_orders({}), "place") == []
    controller.resync(Resync(epoch=50))
    assert [
        payload["epoch"] for payload in named(controller.next_orders({}), "place")
    ] == [100]


def test_evictions_and_revocations_of_an_earlier_scheduler_are_ignored() -> None:
    tracked = TrackedReplica(
        uid="r",
        name="qwen-0",
        cluster="eu",
        index=0,
        entry=ENTRY,
        started=True,
        bound=True,
    )
    controller = a_controller(epoch=9, replicas={"r": tracked})
    controller.evict(Evict(epoch=8, eviction=EVICTION))
    controller.revoke(Revoke(uid="x", epoch=8))
    orders = controller.next_orders({})
    assert (named(orders, "delete"), named(orders, "revoked")) == ([], [])
    controller.evict(Evict(epoch=9, eviction=EVICTION))
    assert [
        payload["uid"] for payload in named(controller.next_orders({}), "delete")
    ] == ["r"]


def test_replicas_that_end_before_their_start_returns_do_not_block_the_deployment() -> (
    None
):
    controller = a_controller(spec={**a_spec(), "replicas": 17})
    controller.next_orders({})
    placements = [
        PLACEMENT.model_copy(update={"uid": f"r{n}", "name": f"qwen-{n}", "index": n})
        for n in range(17)
    ]
    controller.placed(answer(controller, *placements))
    (start,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    controller.resync(Resync(epoch=2))
    controller.replicas.record_report(
        ReplicaChanged(name="qwen-0", uid="r0", sequence=1, phase="Gone")
    )
    orders = controller.replicas.started(start, StartedReplicas())
    assert set(named(orders, "bound")[0]["entries"]) == {f"r{n}" for n in range(1, 17)}
    assert [payload["uid"] for payload in named(orders, "delete")] == ["r0"]


def test_a_released_replica_that_reports_itself_is_deleted_and_not_adopted() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.evict(Evict(epoch=1, eviction=EVICTION))
    account = ReplicaAccount(
        uid="r",
        namespace="ml",
        deployment="qwen",
        name="qwen-0",
        cluster="eu",
        index=0,
        entry=ENTRY,
    )
    orders = controller.replicas.adopt({"modelreplica/ml/qwen-0": account.wire()})
    assert [payload["uid"] for payload in named(orders, "delete")] == ["r"]
    assert state_of(controller).replicas == {}


def test_a_replica_of_an_earlier_deployment_is_started_as_a_rerun() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.placed(
        answer(
            controller,
            PLACEMENT.model_copy(
                update={"action": "Keep", "entry": {**ENTRY, "state": "Bound"}}
            ),
        )
    )
    (start,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    assert [(replica.uid, replica.restarted) for replica in start.replicas] == [
        ("r", True)
    ]
    # It may still be running with that deployment's template, and a start leaves it
    # unchanged.
    orders = controller.replicas.started(start, StartedReplicas())
    assert [
        (payload["uid"], payload["generation"])
        for payload in named(orders, "set_template")
    ] == [("r", 1)]


def test_a_new_replica_is_started_with_its_template_and_gets_it_only_once() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.placed(answer(controller, PLACEMENT))
    (start,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    assert (
        named(controller.replicas.started(start, StartedReplicas()), "set_template")
        == []
    )


def test_a_terminated_replica_is_confirmed_again_after_its_restart() -> None:
    tracked = TrackedReplica(
        uid="r",
        name="qwen-0",
        cluster="eu",
        index=0,
        entry=ENTRY,
        started=True,
        bound=True,
    )
    controller = a_controller(replicas={"r": tracked}, lost={"r": NOW.isoformat()})
    (start,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    # It may have told the scheduler that it is gone.
    assert list(
        named(controller.replicas.started(start, StartedReplicas()), "bound")[0][
            "entries"
        ]
    ) == ["r"]


def test_an_unreadable_account_is_an_event_and_the_other_replicas_are_adopted() -> None:
    controller = a_controller()
    account = ReplicaAccount(
        uid="r",
        namespace="ml",
        deployment="qwen",
        name="qwen-0",
        cluster="eu",
        index=0,
        entry=ENTRY,
    )
    controller.replicas.adopt(
        {
            "modelreplica/ml/bad": {"uid": 5},
            "modelreplica/ml/none": None,
            "modelreplica/ml/qwen-0": account.wire(),
        }
    )
    assert list(state_of(controller).replicas) == ["r"]
    assert [event.reason for event in state_of(controller).events].count(
        "UnreadableAccount"
    ) == 2


def test_a_new_deployment_requests_its_placements_once() -> None:
    controller = a_controller()
    requests = named(controller.next_orders({}), "place")
    controller.placed(answer(controller, PLACEMENT))
    orders = controller.next_orders({})
    (start,) = [order for order in orders if isinstance(order, StartReplicaWorkflows)]
    orders += [
        *controller.replicas.started(start, StartedReplicas()),
        *controller.next_orders({}),
        *controller.next_orders({}),
    ]
    assert len([*requests, *named(orders, "place")]) == 1


def test_replicas_too_large_for_one_call_are_started_in_several() -> None:
    spec = a_spec()
    container = spec["template"]["spec"]["engines"][0]["members"][0]["template"][
        "spec"
    ]["containers"][0]
    container["env"] = [{"name": "V", "value": "x" * 130_000}]
    controller = a_controller(spec={**spec, "replicas": 17})
    controller.next_orders({})
    placements = [
        PLACEMENT.model_copy(
            update={"uid": f"r{n:02}", "name": f"qwen-{n:02}", "index": n}
        )
        for n in range(17)
    ]
    controller.placed(answer(controller, *placements))
    orders = controller.next_orders({})
    starts = [
        order.replicas for order in orders if isinstance(order, StartReplicaWorkflows)
    ]
    assert started(orders) == [f"r{n:02}" for n in range(17)]
    assert (
        max(wire_size(StartReplicas(replicas=start)) for start in starts)
        <= PAYLOAD_BYTES_MAX
    )


# From run to run, and in time


def carried(
    controller: DeploymentController, after: timedelta = timedelta()
) -> DeploymentController:
    """Return the deployment in its next run, after this delay."""
    state = DeploymentState.model_validate_json(
        state_of(controller).model_dump_json(by_alias=True)
    )
    return DeploymentController(
        EntityContext(
            "ModelDeployment",
            state,
            lambda: None,
            "modeldeployment/ml/qwen",
            lambda: NOW + after,
        )
    )


def test_questions_of_the_scheduler_are_carried_over() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.revoke(Revoke(uid="r", epoch=1))
    again = carried(controller)
    assert [payload["uid"] for payload in named(again.next_orders({}), "revoked")] == [
        "r"
    ]
    again.placed(answer(again, PLACEMENT))
    assert state_of(carried(again)).answer is not None


def test_released_replicas_are_carried_over() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.evict(Evict(epoch=1, eviction=EVICTION))
    assert named(carried(controller).next_orders({}), "place")[-1]["returned"] == ["r"]


def test_replicas_without_a_running_workflow_are_carried_over() -> None:
    tracked = TrackedReplica(
        uid="r",
        name="qwen-0",
        cluster="eu",
        index=0,
        entry=ENTRY,
        started=True,
        bound=True,
    )
    controller = a_controller(replicas={"r": tracked})
    controller.replicas.sent(["modelreplica/ml/qwen-0"])
    assert started(carried(controller).next_orders({})) == []
    assert started(carried(controller, timedelta(minutes=1)).next_orders({})) == ["r"]


def test_a_terminating_replica_is_checked_ever_more_rarely_and_restarted_if_terminated() -> (
    None
):
    tracked = PREDECESSOR.model_copy(update={"deletion_reason": "Deleted"})
    controller = a_controller(replicas={"p": tracked})
    asked, second = [], timedelta()
    while second < timedelta(hours=1):
        controller = carried(controller, second)
        asked += [
            second.seconds
            for payload in named(controller.next_orders({}), "delete")
            if payload["uid"] == "p"
        ]
        second += timedelta(seconds=30)
    assert asked == [30, 90, 210, 450, 930, 1830, 2730]
    # The signal of the last check found no workflow.
    controller.replicas.sent(["modelreplica/ml/qwen-p"])
    (start,) = [
        order
        for order in carried(controller, timedelta(hours=2)).next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    assert [
        (replica.uid, replica.restarted, replica.deleting) for replica in start.replicas
    ] == [("p", True, True)]


def a_spec() -> dict[str, Any]:
    spec = state_of(a_controller()).spec
    assert spec
    return spec
