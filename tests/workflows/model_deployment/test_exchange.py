"""The message exchange of a deployment with scheduler and replicas, without a server.

A released placement stays unused.
"""

from datetime import datetime, timedelta

import pytest

from api_types.messages.entities import ReplicaChanged, StartedReplicas
from api_types.messages.scheduling import Evict, Forgotten, Released, Resync, Revoke
from api_types.resources.status import LeftBehind
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
from workflows.model_deployment.orders import (
    SendDeploymentSignals,
    StartReplicaWorkflows,
)
from workflows.model_deployment.replicas import NAME_CONFLICT_RETRY
from workflows.model_deployment.state import TrackedReplica


@pytest.mark.parametrize("first", ["the answer", "the eviction"])
def test_a_placement_evicted_before_its_answer_was_read_is_never_started(
    first: str,
) -> None:
    controller = a_controller()
    controller.next_orders({})
    placed, evicted = answer(controller, PLACEMENT), Evict(epoch=1, eviction=EVICTION)
    if first == "the answer":
        controller.placed(placed)
        controller.evict(evicted)
    else:
        controller.evict(evicted)
        controller.placed(placed)
    orders = [*controller.next_orders({}), *controller.next_orders({})]
    # A repeated answer starts nothing either, however late.
    controller.placed(placed)
    assert started([*orders, *controller.next_orders({})]) == []
    assert {payload["uid"] for payload in named(orders, "revoked")} == {"r"}
    assert named(orders, "place")[-1]["returned"] == ["r"]


def test_a_deployment_requests_again_when_the_deadline_of_a_drain_has_passed() -> None:
    """The scheduler evicts the rest then, and nothing else would cause a request."""
    controller = a_controller()
    state = state_of(controller)
    controller.next_orders({})
    waiting = answer(controller, PLACEMENT).model_copy(
        update={"drain_due_seconds": 600}
    )
    controller.placed(waiting)
    controller.next_orders({})
    due = datetime.fromisoformat(state.drain_due)
    assert timedelta(seconds=600) < due - NOW < timedelta(seconds=610)
    controller.next_orders({})
    assert named(controller.next_orders({}), "place") == []
    assert controller.replicas._context.requeue_time == due
    state.drain_due = NOW.isoformat()
    assert named(controller.next_orders({}), "place")
    # The answer that evicts the rest ends the wait.
    controller.placed(answer(controller, PLACEMENT))
    controller.next_orders({})
    assert state.drain_due == ""


@pytest.mark.parametrize(
    ("epoch", "adopted"),
    [(1, False), (2, True)],
    ids=["of the same scheduler", "of the next one"],
)
def test_an_earlier_answer_to_the_same_request_is_void(
    epoch: int, adopted: bool
) -> None:
    controller = a_controller()
    controller.next_orders({})
    late = answer(controller).model_copy(
        update={"epoch": epoch, "sequence": 7, "shortfall": 1}
    )
    controller.placed(answer(controller).model_copy(update={"sequence": 8}))
    controller.next_orders({})
    controller.placed(late)
    controller.next_orders({})
    assert state_of(controller).shortfall == int(adopted)
    # Answers to another request are not compared with these.
    controller.repeat_reports()
    controller.next_orders({})
    controller.placed(
        answer(controller).model_copy(
            update={"epoch": epoch, "sequence": 1, "shortfall": 2}
        )
    )
    controller.next_orders({})
    assert state_of(controller).shortfall == 2


def test_an_answer_to_a_lost_request_is_void_and_the_deployment_requests_again() -> (
    None
):
    controller = a_controller()
    controller.next_orders({})
    controller.placed(answer(controller))
    controller.next_orders({})
    before = state_of(controller).model_dump()
    controller.next_orders({"name": "a", "state": "Absent"})
    undone = answer(controller, PLACEMENT)

    again = a_controller(**before)
    assert again.next_orders({}) == []
    again.placed(undone)
    (request,) = named(again.next_orders({}), "place")
    assert (
        request["kept"],
        request["sequence"] > int(undone.request_id.rpartition("/")[2]),
    ) == ([], True)
    # A repeat of it does not either, nor does an answer without a request.
    for request_id in (
        undone.request_id,
        "d/1/x",
        f"d/1/{'9' * 5_000}",
        "another/1/9999999999999",
        "",
    ):
        again.placed(undone.model_copy(update={"request_id": request_id}))
        assert again.next_orders({}) == []


def test_a_placement_released_before_its_answer_arrived_is_never_started() -> None:
    controller = a_controller()
    controller.next_orders({})
    placed = answer(controller, PLACEMENT)
    controller.revoke(Revoke(uid="r", epoch=1))
    assert [
        payload["uid"] for payload in named(controller.next_orders({}), "revoked")
    ] == ["r"]
    controller.placed(placed)
    assert started([*controller.next_orders({}), *controller.next_orders({})]) == []


def test_a_queried_placement_with_an_unread_answer_is_used_and_confirmed() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.placed(answer(controller, PLACEMENT))
    controller.revoke(Revoke(uid="r", epoch=1))
    orders = controller.next_orders({})
    assert (started(orders), named(orders, "revoked")) == (["r"], [])
    assert list(named(orders, "bound")[0]["entries"]) == ["r"]


def test_releases_are_not_reported_to_the_scheduler_forever() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.evict(Evict(epoch=1, eviction=EVICTION))
    controller.next_orders({})
    assert state_of(controller).returned == ["r"]
    controller.placed(answer(controller))
    assert state_of(controller).returned == []


def test_an_evicted_replica_is_deleted_once_the_decision_is_in_the_history() -> None:
    """A lost workflow task may be repeated with a new generation, for which the answer is void."""
    tracked = TrackedReplica(
        name="qwen-0",
        uid="r",
        cluster="eu",
        index=0,
        entry=ENTRY,
        started=True,
        bound=True,
    )
    controller = a_controller(replicas={"r": tracked})
    controller.next_orders({})
    controller.placed(answer(controller).model_copy(update={"evictions": [EVICTION]}))
    (deletion,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, SendDeploymentSignals)
        and order.signals[0].signal == "delete"
    ]
    assert (deletion.recorded, deletion.signals[0].payload["uid"]) == (True, "r")


def test_a_replica_evicted_during_its_start_is_deleted_when_it_runs() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.placed(answer(controller, PLACEMENT))
    orders = controller.next_orders({})
    (start,) = [order for order in orders if isinstance(order, StartReplicaWorkflows)]
    controller.evict(Evict(epoch=1, eviction=EVICTION))
    assert named(controller.next_orders({}), "revoked") == []
    assert [
        payload["uid"]
        for payload in named(
            controller.replicas.started(start, StartedReplicas()), "delete"
        )
    ] == ["r"]


def test_a_new_scheduler_forgets_no_replica_that_is_being_started() -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.placed(answer(controller, PLACEMENT))
    (start,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    controller.resync(Resync(epoch=2))
    assert list(
        named(controller.replicas.started(start, StartedReplicas()), "bound")[0][
            "entries"
        ]
    ) == ["r"]


def test_a_terminating_replica_of_an_earlier_deployment_is_deleted_by_this_one() -> (
    None
):
    controller = a_controller()
    controller.next_orders({})
    controller.evict(
        Evict(
            epoch=1,
            eviction=EVICTION.model_copy(
                update={"entry": {**ENTRY, "state": "Releasing"}}
            ),
        )
    )
    orders = controller.next_orders({})
    (start,) = [order for order in orders if isinstance(order, StartReplicaWorkflows)]
    assert (start.replicas[0].restarted, start.replicas[0].deleting) == (True, True)


def test_reports_of_an_earlier_run_do_not_outdate_those_of_a_restarted_replica() -> (
    None
):
    tracked = TrackedReplica(
        uid="r",
        name="qwen-0",
        cluster="eu",
        index=0,
        entry=ENTRY,
        started=True,
        bound=True,
        sequence=7,
    )
    controller = a_controller(replicas={"r": tracked}, lost={"r": NOW.isoformat()})
    orders = controller.next_orders({})
    (start,) = [order for order in orders if isinstance(order, StartReplicaWorkflows)]
    assert [
        event.message
        for event in state_of(controller).events
        if event.reason == "ReplicaLost"
    ] == ["the workflow of qwen-0 does not run; it is started again"]
    controller.replicas.started(start, StartedReplicas())
    late = ReplicaChanged(
        name="qwen-0", uid="r", sequence=50, phase="Ready", ready=True
    )
    controller.replicas.record_report(late)
    assert not state_of(controller).replicas["r"].ready
    controller.replicas.record_report(
        late.model_copy(update={"sequence": start.replicas[0].first_sequence + 1})
    )
    assert state_of(controller).replicas["r"].ready


@pytest.mark.parametrize(
    "read", ["after the answer was read", "before the answer was read"]
)
@pytest.mark.parametrize("told", ["by the scheduler", "by the replica"])
def test_a_placement_waits_for_the_end_of_a_predecessor_from_another_deployment(
    read: str, told: str
) -> None:
    controller = a_controller()
    controller.next_orders({})
    controller.placed(answer(controller, PLACEMENT.model_copy(update={"after": ["x"]})))
    if read == "after the answer was read":
        assert started(controller.next_orders({})) == []
    if told == "by the scheduler":
        controller.released(Released(uid="x"))
    else:
        controller.replicas.record_report(
            ReplicaChanged(name="qwen-x", uid="x", sequence=9, phase="Gone")
        )
    assert started(controller.next_orders({})) == ["r"]


def test_a_late_answer_does_not_restart_a_wait_for_a_deleted_replica() -> None:
    controller = a_controller()
    controller.next_orders({})
    placed = answer(controller, PLACEMENT.model_copy(update={"after": ["x", "y"]}))
    controller.placed(placed)
    controller.next_orders({})
    controller.released(Released(uid="x"))
    controller.placed(placed)
    controller.next_orders({})
    assert state_of(controller).replicas["r"].after == ["y"]
    # A new answer of the scheduler is more recent than a message that never came.
    controller.placed(
        answer(controller, PLACEMENT.model_copy(update={"action": "Keep"}))
    )
    assert started(controller.next_orders({})) == ["r"]


def test_a_deployment_ends_when_the_scheduler_confirms_that_nothing_is_charged() -> (
    None
):
    controller = a_controller(deletion_timestamp=NOW.isoformat(), epoch=5)
    orders = controller.next_orders({})
    assert [payload["gone"] for payload in named(orders, "forget")] == [False, True]
    assert (controller.is_gone, named(controller.next_orders({}), "forget")) == (
        False,
        [],
    )
    # Neither the answer to an earlier deployment of its name counts, nor one of a
    # scheduler that lost its state since.
    controller.forgotten(Forgotten(uid="another", epoch=5))
    controller.forgotten(Forgotten(uid="d", epoch=4))
    assert not controller.is_gone
    controller.resync(Resync(epoch=6))
    assert [
        payload["gone"] for payload in named(controller.next_orders({}), "forget")
    ] == [True]
    controller.forgotten(Forgotten(uid="d", epoch=6))
    controller.next_orders({})
    assert controller.is_gone


def test_a_deleted_deployment_deletes_replicas_known_only_to_the_scheduler() -> None:
    controller = a_controller(deletion_timestamp=NOW.isoformat(), epoch=1)
    controller.next_orders({})
    controller.evict(
        Evict(
            epoch=1,
            eviction=EVICTION.model_copy(update={"entry": {**ENTRY, "state": "Bound"}}),
        )
    )
    # It may have received the question before that.
    controller.forgotten(Forgotten(uid="d", epoch=1))
    (start,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    assert (start.replicas[0].deleting, controller.is_gone) == (True, False)
    controller.replicas.started(start, StartedReplicas())
    controller.replicas.record_report(
        ReplicaChanged(
            name="qwen-0",
            uid="r",
            sequence=start.replicas[0].first_sequence + 1,
            phase="Gone",
        )
    )
    assert [
        payload["gone"] for payload in named(controller.next_orders({}), "forget")
    ] == [True]
    controller.forgotten(Forgotten(uid="d", epoch=1))
    assert controller.is_gone


def test_a_deployment_asks_again_if_the_scheduler_does_not_confirm_that_nothing_is_charged() -> (
    None
):
    controller = a_controller(deletion_timestamp=NOW.isoformat())
    controller.next_orders({})
    state_of(controller).release_check_at = NOW.isoformat()
    assert [
        payload["gone"] for payload in named(controller.next_orders({}), "forget")
    ] == [True]
    assert state_of(controller).release_checks == 2


def test_a_replica_named_only_by_a_late_eviction_is_forgotten_once_it_is_gone() -> None:
    controller = a_controller()
    controller.evict(
        Evict(
            epoch=1,
            eviction=EVICTION.model_copy(
                update={"entry": {**ENTRY, "state": "Releasing"}}
            ),
        )
    )
    controller.released(Released(uid="r"))
    assert state_of(controller).replicas == {}
    assert started(controller.next_orders({})) == []


def test_a_replica_that_ended_before_its_restart_is_forgotten() -> None:
    tracked = TrackedReplica(
        uid="r",
        name="qwen-0",
        cluster="eu",
        index=0,
        entry=ENTRY,
        restarted=True,
        sequence=7,
    )
    controller = a_controller(replicas={"r": tracked})
    left = LeftBehind(
        kind="Service", name="qwen", location="eu", reason="deletion was forced"
    )
    controller.replicas.record_report(
        ReplicaChanged(
            name="qwen-0", uid="r", sequence=8, phase="Gone", left_behind=[left]
        )
    )
    assert (state_of(controller).replicas, state_of(controller).left_behind) == (
        {},
        [left],
    )


def test_a_start_that_the_server_rejects_is_retried_with_a_reason() -> None:
    replicas = {
        uid: TrackedReplica(uid=uid, name=uid, cluster="eu", index=0, entry=ENTRY)
        for uid in ("good", "huge")
    }
    controller = a_controller(replicas=replicas)
    (start,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    controller.replicas.started(start, StartedReplicas(refused={"huge": "too large"}))
    (event,) = state_of(controller).events
    assert (event.reason, event.message) == (
        "StartRefused",
        "huge cannot be started and is retried: too large",
    )
    assert {
        uid: replica.started for uid, replica in state_of(controller).replicas.items()
    } == {"good": True, "huge": False}
    assert started(controller.next_orders({})) == []
    state_of(controller).update(
        state_of(controller).replicas["huge"],
        start_after=(NOW - timedelta(seconds=1)).isoformat(),
    )
    assert started(controller.next_orders({})) == ["huge"]


def test_a_start_with_an_occupied_name_is_retried_later_or_when_the_name_is_free() -> (
    None
):
    tracked = TrackedReplica(uid="r", name="qwen-0", cluster="eu", index=0, entry=ENTRY)
    controller = a_controller(replicas={"r": tracked})
    (start,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    for _ in range(2):
        controller.replicas.started(start, StartedReplicas(conflicts=["qwen-0"]))
    assert [(event.reason, event.count) for event in state_of(controller).events] == [
        ("NameConflict", 1)
    ]
    # Each pass starts without a time for the next one.
    controller.placements._context.requeue_time = None
    assert started(controller.next_orders({})) == []
    assert controller.placements._context.requeue_time == NOW + NAME_CONFLICT_RETRY
    controller.replicas.record_report(
        ReplicaChanged(name="qwen-0", uid="other", sequence=1, phase="Gone")
    )
    assert started(controller.next_orders({})) == ["r"]


def test_a_started_replica_no_longer_waits_for_its_name() -> None:
    waited = TrackedReplica(
        uid="r",
        name="qwen-0",
        cluster="eu",
        index=0,
        entry=ENTRY,
        start_after=NOW.isoformat(),
    )
    controller = a_controller(replicas={"r": waited})
    (start,) = [
        order
        for order in controller.next_orders({})
        if isinstance(order, StartReplicaWorkflows)
    ]
    controller.replicas.started(start, StartedReplicas())
    assert state_of(controller).replicas["r"].start_after == ""


@pytest.mark.parametrize(("epoch", "ordered"), [(1, True), (2, False)])
def test_the_orders_of_an_unread_answer_are_not_lost_with_the_next_one(
    epoch: int, *, ordered: bool
) -> None:
    """A decision that goes on answers twice, and the scheduler orders each change once."""
    tracked = {
        uid: TrackedReplica(
            uid=uid,
            name=f"qwen-{uid}",
            cluster="eu",
            index=0,
            entry=ENTRY,
            started=True,
        )
        for uid in ("r", "s")
    }
    controller = a_controller(replicas=tracked)
    controller.next_orders({})
    update = PLACEMENT.model_copy(update={"action": "Update"})
    keep = PLACEMENT.model_copy(update={"action": "Keep", "entry": {}})
    evicted = EVICTION.model_copy(update={"uid": "s"})
    first = answer(controller, update).model_copy(update={"evictions": [evicted]})
    controller.placed(first)
    controller.placed(answer(controller, keep).model_copy(update={"epoch": epoch}))
    orders = [*controller.next_orders({}), *controller.next_orders({})]
    changed = [payload["uid"] for payload in named(orders, "set_template")]
    deleted = len(named(orders, "delete"))
    assert (changed, deleted) == ((["r"], 1) if ordered else ([], 0))
