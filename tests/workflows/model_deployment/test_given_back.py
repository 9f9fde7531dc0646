"""What becomes of a placement that is not started: it is given back, and never started by a later pass. No server is needed."""

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
from workflows.model_deployment.orders import Start
from workflows.model_deployment.state import DeploymentState, TrackedReplica

PREDECESSOR = TrackedReplica(
    uid="p", name="qwen-p", cluster="eu", index=0, entry=ENTRY, started=True, bound=True, deletion_reason="replaced"
)


def a_deployment_that_waits_for_a_predecessor() -> DeploymentController:
    """One whose placement was read from its answer and cannot be started yet."""
    controller = a_controller(replicas={"p": PREDECESSOR})
    controller.next_orders({})
    controller.placed(answer(controller, PLACEMENT.model_copy(update={"after": ["p"]})))
    assert started(controller.next_orders({})) == []
    assert "r" in state_of(controller).replicas
    return controller


def after_the_predecessor(controller: DeploymentController) -> list[str]:
    """Let the predecessor end; gives what is started then."""
    controller.replicas.record_report(ReplicaChanged(name="qwen-p", uid="p", sequence=1, phase="Gone"))
    return started([*controller.next_orders({}), *controller.next_orders({})])


def test_a_placement_that_waits_is_started_after_its_predecessor() -> None:
    assert after_the_predecessor(a_deployment_that_waits_for_a_predecessor()) == ["r"]


def test_a_placement_that_waits_and_is_given_back_is_never_started() -> None:
    controller = a_deployment_that_waits_for_a_predecessor()
    controller.revoke(Revoke(uid="r", epoch=1))
    assert [payload["uid"] for payload in named(controller.next_orders({}), "revoked")] == ["r"]
    assert after_the_predecessor(controller) == []


def test_a_placement_that_waits_and_is_evicted_is_given_back_and_never_started() -> None:
    controller = a_deployment_that_waits_for_a_predecessor()
    controller.evict(Evict(epoch=1, eviction=EVICTION))
    assert [payload["uid"] for payload in named(controller.next_orders({}), "revoked")] == ["r"]
    assert after_the_predecessor(controller) == []


def test_a_placement_of_an_earlier_scheduler_is_void_and_the_new_one_is_told() -> None:
    controller = a_deployment_that_waits_for_a_predecessor()
    controller.resync(Resync(epoch=2))
    assert list(state_of(controller).replicas) == ["p"]
    assert named(controller.next_orders({}), "place")[-1]["returned"] == ["r"]
    assert after_the_predecessor(controller) == []


def test_an_answer_that_places_again_what_was_given_back_is_not_used_and_another_one_is_requested() -> None:
    plan = plan_answer({}, answer(a_controller(), PLACEMENT), 1, "d", ["r"])
    assert (plan.create, plan.repeat) == ([], True)


def test_an_answer_of_an_earlier_scheduler_is_ignored_and_it_is_told_of_the_epoch() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.resync(Resync(epoch=100))
    (request,) = named(controller.next_orders({}), "place")
    assert request["epoch"] == 100
    # As the scheduler that has the smaller epoch answers.
    controller.placed(answer(controller, PLACEMENT).model_copy(update={"epoch": 50}))
    orders = controller.next_orders({})
    assert (started(orders), [payload["epoch"] for payload in named(orders, "place")]) == ([], [100])


def test_a_scheduler_that_announces_a_smaller_epoch_is_told_of_the_greater_one_and_the_same_one_again_changes_nothing() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.resync(Resync(epoch=100))
    controller.next_orders({})
    controller.resync(Resync(epoch=100))
    assert named(controller.next_orders({}), "place") == []
    controller.resync(Resync(epoch=50))
    assert [payload["epoch"] for payload in named(controller.next_orders({}), "place")] == [100]


def test_evictions_and_revocations_of_an_earlier_scheduler_are_ignored() -> None:
    tracked = TrackedReplica(uid="r", name="qwen-0", cluster="eu", index=0, entry=ENTRY, started=True, bound=True)
    controller = a_controller(epoch=9, replicas={"r": tracked})
    controller.evict(Evict(epoch=8, eviction=EVICTION))
    controller.revoke(Revoke(uid="x", epoch=8))
    orders = controller.next_orders({})
    assert (named(orders, "delete"), named(orders, "revoked")) == ([], [])
    controller.evict(Evict(epoch=9, eviction=EVICTION))
    assert [payload["uid"] for payload in named(controller.next_orders({}), "delete")] == ["r"]


def test_replicas_that_are_gone_before_their_start_has_returned_stick_no_deployment() -> None:
    controller = a_controller(spec={**a_spec(), "replicas": 17})
    controller.next_orders({})
    placements = [PLACEMENT.model_copy(update={"uid": f"r{n}", "name": f"qwen-{n}", "index": n}) for n in range(17)]
    controller.placed(answer(controller, *placements))
    (start,) = [order for order in controller.next_orders({}) if isinstance(order, Start)]
    controller.resync(Resync(epoch=2))
    controller.replicas.record_report(ReplicaChanged(name="qwen-0", uid="r0", sequence=1, phase="Gone"))
    orders = controller.replicas.started(start, StartedReplicas())
    assert set(named(orders, "bound")[0]["entries"]) == {f"r{n}" for n in range(1, 17)}
    assert [payload["uid"] for payload in named(orders, "delete")] == ["r0"]


def test_a_replica_that_was_given_back_and_reports_itself_is_deleted_and_not_adopted() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.evict(Evict(epoch=1, eviction=EVICTION))
    account = ReplicaAccount(uid="r", namespace="ml", deployment="qwen", name="qwen-0", cluster="eu", index=0, entry=ENTRY)
    orders = controller.replicas.adopt({"modelreplica/ml/qwen-0": account.wire()})
    assert [payload["uid"] for payload in named(orders, "delete")] == ["r"]
    assert state_of(controller).replicas == {}


def test_a_replica_that_an_earlier_deployment_had_started_is_started_again_as_one_that_ran_before() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.placed(answer(controller, PLACEMENT.model_copy(update={"action": "Keep", "entry": {**ENTRY, "state": "Bound"}})))
    (start,) = [order for order in controller.next_orders({}) if isinstance(order, Start)]
    assert [(replica.uid, replica.restarted) for replica in start.replicas] == [("r", True)]
    # It may run all the time, with the template of that deployment: a start leaves it as it is.
    orders = controller.replicas.started(start, StartedReplicas())
    assert [(payload["uid"], payload["generation"]) for payload in named(orders, "set_template")] == [("r", 1)]


def test_a_replica_that_was_just_placed_is_started_with_its_template_and_gets_it_only_once() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.placed(answer(controller, PLACEMENT))
    (start,) = [order for order in controller.next_orders({}) if isinstance(order, Start)]
    assert named(controller.replicas.started(start, StartedReplicas()), "set_template") == []


def test_a_replica_that_was_terminated_is_confirmed_again_when_it_was_started_again() -> None:
    tracked = TrackedReplica(uid="r", name="qwen-0", cluster="eu", index=0, entry=ENTRY, started=True, bound=True)
    controller = a_controller(replicas={"r": tracked}, lost={"r": NOW.isoformat()})
    (start,) = [order for order in controller.next_orders({}) if isinstance(order, Start)]
    # It may have told the scheduler that it is gone.
    assert list(named(controller.replicas.started(start, StartedReplicas()), "bound")[0]["entries"]) == ["r"]


def test_an_account_that_cannot_be_read_is_an_event_and_the_others_are_adopted() -> None:
    controller = a_controller()
    account = ReplicaAccount(uid="r", namespace="ml", deployment="qwen", name="qwen-0", cluster="eu", index=0, entry=ENTRY)
    controller.replicas.adopt({"modelreplica/ml/bad": {"uid": 5}, "modelreplica/ml/none": None, "modelreplica/ml/qwen-0": account.wire()})
    assert list(state_of(controller).replicas) == ["r"]
    assert [event.reason for event in state_of(controller).events].count("UnreadableAccount") == 2


def test_a_new_deployment_requests_its_placements_once() -> None:
    controller = a_controller()
    requests = named(controller.next_orders({}), "place")
    controller.placed(answer(controller, PLACEMENT))
    orders = controller.next_orders({})
    (start,) = [order for order in orders if isinstance(order, Start)]
    orders += [*controller.replicas.started(start, StartedReplicas()), *controller.next_orders({}), *controller.next_orders({})]
    assert len([*requests, *named(orders, "place")]) == 1


def test_replicas_that_are_large_together_are_started_in_several_calls() -> None:
    spec = a_spec()
    container = spec["template"]["spec"]["engines"][0]["members"][0]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "V", "value": "x" * 130_000}]
    controller = a_controller(spec={**spec, "replicas": 17})
    controller.next_orders({})
    placements = [PLACEMENT.model_copy(update={"uid": f"r{n:02}", "name": f"qwen-{n:02}", "index": n}) for n in range(17)]
    controller.placed(answer(controller, *placements))
    orders = controller.next_orders({})
    starts = [order.replicas for order in orders if isinstance(order, Start)]
    assert started(orders) == [f"r{n:02}" for n in range(17)]
    assert max(wire_size(StartReplicas(replicas=start)) for start in starts) <= PAYLOAD_BYTES_MAX


# --- from run to run, and in time ---------------------------------------------------------------------------------------------------------


def carried(controller: DeploymentController, after: timedelta = timedelta()) -> DeploymentController:
    """Give the deployment in its next run, that much later."""
    state = DeploymentState.model_validate_json(state_of(controller).model_dump_json(by_alias=True))
    return DeploymentController(EntityContext("ModelDeployment", state, lambda: None, "modeldeployment/ml/qwen", lambda: NOW + after))


def test_a_run_that_ends_forgets_no_question_of_the_scheduler() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.revoke(Revoke(uid="r", epoch=1))
    again = carried(controller)
    assert [payload["uid"] for payload in named(again.next_orders({}), "revoked")] == ["r"]
    again.placed(answer(again, PLACEMENT))
    assert state_of(carried(again)).answer is not None


def test_a_run_that_ends_forgets_no_replica_that_was_given_back() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.evict(Evict(epoch=1, eviction=EVICTION))
    assert named(carried(controller).next_orders({}), "place")[-1]["returned"] == ["r"]


def test_a_run_that_ends_forgets_no_replica_whose_workflow_does_not_run() -> None:
    tracked = TrackedReplica(uid="r", name="qwen-0", cluster="eu", index=0, entry=ENTRY, started=True, bound=True)
    controller = a_controller(replicas={"r": tracked})
    controller.replicas.sent(["modelreplica/ml/qwen-0"])
    assert started(carried(controller).next_orders({})) == []
    assert started(carried(controller, timedelta(minutes=1)).next_orders({})) == ["r"]


def test_a_replica_that_is_being_deleted_is_looked_after_ever_more_rarely_and_started_again_when_it_was_terminated() -> None:
    tracked = PREDECESSOR.model_copy(update={"deletion_reason": "Deleted"})
    controller = a_controller(replicas={"p": tracked})
    asked, second = [], timedelta()
    while second < timedelta(hours=1):
        controller = carried(controller, second)
        asked += [second.seconds for payload in named(controller.next_orders({}), "delete") if payload["uid"] == "p"]
        second += timedelta(seconds=30)
    assert asked == [30, 90, 210, 450, 930, 1830, 2730]
    # The signal of the last check found no workflow.
    controller.replicas.sent(["modelreplica/ml/qwen-p"])
    (start,) = [order for order in carried(controller, timedelta(hours=2)).next_orders({}) if isinstance(order, Start)]
    assert [(replica.uid, replica.restarted, replica.deleting) for replica in start.replicas] == [("p", True, True)]


def a_spec() -> dict[str, Any]:
    spec = state_of(a_controller()).spec
    assert spec
    return spec
