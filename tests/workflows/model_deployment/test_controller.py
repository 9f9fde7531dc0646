"""The state and the orders of a deployment after each message.

These tests need no server.
"""

from datetime import timedelta
from typing import Any

import pytest

from api_types.messages.delivery import SignalRequest
from api_types.messages.entities import ReplicaChanged, Scale
from api_types.messages.scheduling import (
    Evict,
    PlacementResponse,
    ReplicaAccount,
    Resync,
)
from api_types.messages.signals import FLEET_SCHEDULER
from api_types.resources.status import LastScale, LeftBehind
from tests.workflows.model_deployment.exchange import (
    ENTRY,
    EVICTION,
    NOW,
    PLACEMENT,
    a_controller,
    answer,
    named,
    signals,
    started,
    state_of,
)
from workflows.entity import backoff
from workflows.model_deployment.controller import DeploymentController
from workflows.model_deployment.orders import ReadReplicaAccounts, SendDeploymentSignals
from workflows.model_deployment.replicas import LAST_REPORT_TIMEOUT
from workflows.model_deployment.state import GenerationTimings, TrackedReplica
from workflows.model_deployment.teardown import NAMED_MAX, waiting_message

RUNNING = TrackedReplica(
    uid="r",
    name="qwen-0",
    cluster="eu",
    index=0,
    entry=ENTRY,
    generation=2,
    applied_generation=2,
    started=True,
    bound=True,
    sequence=3,
)
ACCOUNT = ReplicaAccount(
    uid="r",
    namespace="ml",
    deployment="qwen",
    name="qwen-0",
    cluster="eu",
    index=0,
    entry=ENTRY,
)


def with_replica(**fields: Any) -> DeploymentController:
    """Return a deployment with one running replica that has these fields."""
    return a_controller(replicas={"r": RUNNING.model_copy(update=fields)})


def receivers(sent: list[SignalRequest], name: str) -> list[str]:
    """Return the receivers of a signal."""
    return [each.workflow_id for each in sent if each.signal == name]


def messages(controller: DeploymentController) -> list[tuple[str, str, str]]:
    """Return the events as users read them."""
    return [
        (event.type, event.reason, event.message)
        for event in state_of(controller).events
    ]


# Requests


@pytest.mark.parametrize(
    ("lost", "answered", "requested"),
    [
        ([FLEET_SCHEDULER.workflow_id], True, 1),
        (["modelcache/ml/weights"], True, 0),
        (["modelcache/ml/weights"], False, 1),
    ],
    ids=["the scheduler is another", "another receiver is", "nobody has answered yet"],
)
def test_placements_are_requested_again_when_the_answer_may_be_lost(
    lost: list[str], *, answered: bool, requested: int
) -> None:
    controller = a_controller()
    controller.next_orders({})
    if answered:
        controller.placed(answer(controller))
        controller.next_orders({})
    controller.receivers_lost(lost)
    assert len(named(controller.next_orders({}), "place")) == requested


def test_placements_unknown_to_a_new_scheduler_are_released_once_and_started_ones_stay() -> (
    None
):
    waiting = RUNNING.model_copy(update={"uid": "w", "started": False, "bound": False})
    returned = waiting.model_copy(update={"uid": "x"})
    controller = a_controller(
        replicas={each.uid: each for each in (RUNNING, waiting, returned)},
        returned=["x"],
    )
    controller.resync(Resync(epoch=4))
    state = state_of(controller)
    assert (list(state.replicas), state.returned, state.epoch) == (["r"], ["x", "w"], 4)


@pytest.mark.parametrize(
    ("known", "seconds"),
    [(None, 90.0), (4.0, 4.0)],
    ids=["the first answer", "a later one"],
)
def test_the_placement_duration_is_the_time_to_the_first_answer(
    known: float | None, seconds: float
) -> None:
    accepted = (NOW - timedelta(seconds=90)).timestamp()
    timings = GenerationTimings(generation=1, accepted=accepted, placed_seconds=known)
    controller = a_controller(timings=timings)
    controller.next_orders({})
    controller.placed(answer(controller))
    assert state_of(controller).timings == timings.model_copy(
        update={"placed_seconds": seconds}
    )


def test_the_answer_sets_the_clusters_of_replicas() -> None:
    controller = a_controller()
    controller.next_orders({})
    places = [("a", "us"), ("b", "eu"), ("c", "us")]
    placements = [
        PLACEMENT.model_copy(update={"uid": uid, "name": uid, "cluster": cluster})
        for uid, cluster in places
    ]
    controller.placed(answer(controller, *placements))
    controller.next_orders({})
    assert messages(controller) == [
        ("Normal", "Scheduled", "Scheduled 3 replicas across 2 clusters: eu, us")
    ]


@pytest.mark.parametrize(
    ("change", "adopted"),
    [({}, True), ({"generation": 2}, False), ({"request_id": "another"}, False)],
    ids=["the last request", "an earlier generation", "an earlier request"],
)
def test_only_an_answer_to_the_current_generation_is_executed(
    change: dict[str, Any], *, adopted: bool
) -> None:
    controller = a_controller()
    controller.next_orders({})
    given: PlacementResponse = answer(controller, PLACEMENT)
    state_of(controller).answer = given.model_copy(update=change)
    assert started(controller.next_orders({})) == (["r"] if adopted else [])


# The count

AT = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("scale", "events", "generation"),
    [
        (
            Scale(replicas=3, by="ann", reason="a batch"),
            [("Normal", "Scaled", "from 1 to 3 by ann: a batch")],
            2,
        ),
        (Scale(replicas=0), [("Normal", "Scaled", "from 1 to 0 by unknown")], 2),
        (Scale(replicas=1, by="ann"), [], 1),
    ],
    ids=["with a reason", "by nobody in particular", "the same count"],
)
def test_a_count_is_recorded_with_its_writer_and_a_new_one_makes_a_generation(
    scale: Scale, events: list[tuple[str, str, str]], generation: int
) -> None:
    controller = a_controller()
    controller.scale(scale.model_copy(update={"request_id": "q"}))
    state = state_of(controller)
    assert state.last_scale == LastScale(
        replicas=scale.replicas, by=scale.by, at=AT, request_id="q"
    )
    assert messages(controller) == events
    assert state.spec is not None
    assert (state.spec["replicas"], state.generation) == (scale.replicas, generation)
    began = GenerationTimings(generation=2, accepted=NOW.timestamp())
    assert state.timings == (began if events else None)


def test_an_invalid_count_is_an_event_with_the_reason_and_changes_nothing() -> None:
    controller = a_controller()
    controller.scale(Scale(replicas=-1, by="ann"))
    ((kind, reason, message),) = messages(controller)
    assert (kind, reason, message[:14]) == ("Warning", "ScaleRefused", "spec.replicas:")
    state = state_of(controller)
    assert state.spec is not None
    assert (state.spec["replicas"], state.generation, state.last_scale) == (1, 1, None)


# Reports of replicas


def gone(**fields: Any) -> ReplicaChanged:
    return ReplicaChanged(
        **{"name": "qwen-0", "uid": "r", "sequence": 9, "phase": "Gone", **fields}
    )


LEFT = [
    LeftBehind(kind="Service", name=name, location="eu", reason="forced")
    for name in "ab"
]


@pytest.mark.parametrize(
    ("replica", "report", "events"),
    [
        (
            {},
            gone(),
            [
                (
                    "Warning",
                    "ReplicaGone",
                    "qwen-0 on eu is gone; a new placement is requested",
                )
            ],
        ),
        (
            {"deletion_reason": "Deleted"},
            gone(left_behind=LEFT),
            [
                ("Normal", "ReplicaDeleted", "qwen-0 was deleted from eu"),
                (
                    "Warning",
                    "LeftBehind",
                    "qwen-0 left 2 objects on eu; see status.leftBehind",
                ),
            ],
        ),
        ({"sequence": 9}, gone(), []),
    ],
    ids=["by itself", "that was ordered, with force", "an old report"],
)
def test_the_end_of_a_replica_is_an_event(
    replica: dict[str, Any], report: ReplicaChanged, events: list[tuple[str, str, str]]
) -> None:
    controller = with_replica(**replica)
    controller.replicas.record_report(report)
    assert messages(controller) == events
    assert list(state_of(controller).replicas) == ([] if events else ["r"])
    assert state_of(controller).left_behind == report.left_behind


@pytest.mark.parametrize(
    ("phase", "unknown"), [("Ready", ["qwen-0"]), ("Gone", []), ("Terminating", [])]
)
def test_an_untracked_replica_that_reports_is_queried_unless_it_ends(
    phase: str, unknown: list[str]
) -> None:
    controller = a_controller()
    for _ in range(2):
        controller.replicas.record_report(gone(phase=phase))
    assert state_of(controller).unknown == unknown


@pytest.mark.parametrize(
    ("reported", "kept", "deployment"),
    [(1, 2, 1), (5, 5, 5)],
    ids=["an older one", "a newer one"],
)
def test_future_templates_are_newer_than_the_one_that_a_replica_runs(
    reported: int, kept: int, deployment: int
) -> None:
    controller = with_replica()
    report = gone(
        phase="Ready",
        generation=reported,
        message="x",
        endpoint="http://r",
        serving=True,
    )
    controller.replicas.record_report(report)
    replica = state_of(controller).replicas["r"]
    assert (replica.generation, replica.applied_generation) == (kept, reported)
    assert (replica.message, replica.endpoint, replica.serving) == (
        "x",
        "http://r",
        True,
    )
    assert state_of(controller).generation == deployment


# Replicas whose workflows do not run


@pytest.mark.parametrize(
    ("replicas", "events"),
    [
        ({"r": RUNNING}, ["ReplicaLost"]),
        ({"r": RUNNING.model_copy(update={"started": False})}, []),
        ({}, []),
    ],
    ids=["it does not run", "it is started again already", "it is gone meanwhile"],
)
def test_the_loss_of_a_replica_is_counted_once(
    replicas: dict[str, TrackedReplica], events: list[str]
) -> None:
    controller = a_controller(replicas=replicas, lost={"r": NOW.isoformat()})
    controller.replicas.restart_lost()
    assert [reason for _, reason, _ in messages(controller)] == events
    assert state_of(controller).lost == {}


def test_an_unreachable_replica_has_time_for_its_last_report() -> None:
    controller = with_replica()
    controller._context.requeue_time = None
    due = NOW + LAST_REPORT_TIMEOUT
    for missing in (["modelreplica/ml/other"], ["modelreplica/ml/qwen-0"]):
        controller.replicas.sent(missing)
    assert state_of(controller).lost == {"r": due.isoformat()}
    assert controller._context.requeue_time == due
    # A second signal that does not find it does not extend that time.
    state_of(controller).lost = {"r": NOW.isoformat()}
    controller.replicas.sent(["modelreplica/ml/qwen-0"])
    assert state_of(controller).lost == {"r": NOW.isoformat()}


def test_silent_replicas_are_queried_with_growing_pauses() -> None:
    controller = a_controller()
    order, context = ReadReplicaAccounts(["qwen-0", "qwen-1"]), controller._context
    silent = ["modelreplica/ml/qwen-1"]
    for attempt in range(2):
        context.requeue_time = None
        controller.replicas.accounts_read(
            order, {"modelreplica/ml/qwen-0": ACCOUNT.wire()}, silent
        )
        assert context.requeue_time == NOW + backoff.after_retries(attempt)
        assert state_of(controller).unknown == ["qwen-1"]
        state_of(controller).unknown = []
    controller.replicas.accounts_read(order, {}, [])
    assert (
        state_of(controller).unknown_attempts,
        list(state_of(controller).replicas),
    ) == (
        0,
        ["r"],
    )


@pytest.mark.parametrize(
    ("account", "adopted"),
    [
        ({}, True),
        ({"gone": True}, False),
        ({"namespace": "other"}, False),
        ({"deployment": "other"}, False),
    ],
    ids=[
        "of this deployment",
        "a deleted replica",
        "of another namespace",
        "of another deployment",
    ],
)
def test_a_running_replica_of_this_deployment_is_adopted(
    account: dict[str, Any], *, adopted: bool
) -> None:
    controller = a_controller()
    found = ACCOUNT.model_copy(
        update={"generation": 4, "template_sequence": 99, **account}
    )
    controller.replicas.adopt({"modelreplica/ml/qwen-0": found.wire()})
    state = state_of(controller)
    tracked = RUNNING.model_copy(
        update={"generation": 4, "applied_generation": 0, "sequence": 0}
    )
    assert state.replicas == ({"r": tracked} if adopted else {})
    assert (state.generation, state.registration) == ((4, 99) if adopted else (1, 0))
    assert messages(controller) == (
        [("Normal", "Adopted", "qwen-0 on eu")] if adopted else []
    )
    assert state.resync_due == adopted


def test_a_terminated_replica_is_tracked_to_be_deleted() -> None:
    controller = a_controller()
    order = ReadReplicaAccounts(["qwen-0"], unfinished=True)
    controller.replicas.accounts_read(
        order, {"modelreplica/ml/qwen-0": ACCOUNT.wire()}, []
    )
    (tracked,) = state_of(controller).replicas.values()
    assert (tracked.restarted, tracked.started, tracked.deletion_reason) == (
        True,
        False,
        "it was terminated",
    )
    lost = "qwen-0 was terminated; it is started again to be deleted"
    assert messages(controller) == [("Warning", "ReplicaLost", lost)]


# Reservations


@pytest.mark.parametrize(
    ("replica", "returned", "answered", "left"),
    [
        ({}, [], "bound", []),
        ({"started": False, "bound": False}, [], "revoked", ["r"]),
        ({"started": False, "bound": False}, ["r"], "revoked", ["r"]),
        (None, [], "revoked", ["r"]),
        (None, ["r"], "revoked", ["r"]),
    ],
    ids=[
        "it runs",
        "it waits",
        "it waits and was released before",
        "nothing is known of it",
        "it was released before",
    ],
)
def test_a_reservation_is_confirmed_or_released_once(
    replica: dict[str, Any] | None, returned: list[str], answered: str, left: list[str]
) -> None:
    controller = (
        a_controller(returned=returned) if replica is None else with_replica(**replica)
    )
    state = state_of(controller)
    state.returned, state.requested_inputs = returned, None
    controller.replicas.record_revoked("r")
    orders = controller.replicas.answer_revoked()
    assert [each.signal for each in signals(orders)] == [answered]
    assert (state.returned, state.revoked) == (left, [])
    assert list(state.replicas) == (["r"] if answered == "bound" else [])
    # An answer that frees nodes is sent only with the decision in the history.
    assert [
        order.recorded for order in orders if isinstance(order, SendDeploymentSignals)
    ] == [answered == "revoked"]


# Templates and labels


@pytest.mark.parametrize(
    ("replica", "again"),
    [
        ({}, []),
        ({"applied_generation": 1}, ["r"]),
        ({"adoption": 5, "adopted": 4}, ["r"]),
        ({"adoption": 5, "adopted": 5}, []),
        ({"applied_generation": 1, "deletion_reason": "Deleted"}, []),
    ],
    ids=[
        "it has all",
        "an old template",
        "an old adoption",
        "the adoption",
        "being deleted",
    ],
)
def test_outdated_replicas_get_the_template_again_on_their_reports(
    replica: dict[str, Any], again: list[str]
) -> None:
    controller = with_replica(**replica)
    assert controller.replicas.resync() == []
    controller.replicas.request_resync()
    orders = controller.replicas.resync()
    assert receivers(signals(orders), "resync") == ["modelreplica/ml/qwen-0"]
    assert [payload["uid"] for payload in named(orders, "set_template")] == again
    assert all(payload["sequence"] > 0 for payload in named(orders, "set_template"))
    assert controller.replicas.resync() == []


def test_labels_are_sent_once_to_all_running_replicas() -> None:
    controller = with_replica()
    waiting = RUNNING.model_copy(
        update={"uid": "w", "name": "qwen-w", "started": False}
    )
    state = state_of(controller)
    state.replicas["w"] = waiting
    assert state.spec is not None
    state.spec["template"] = {
        **state.spec["template"],
        "metadata": {"labels": {"team": "a"}},
    }
    orders = controller.replicas.update_labels()
    (labels,) = named(orders, "set_labels")
    assert (labels["uid"], labels["labels"], labels["sequence"] > 0) == (
        "r",
        {"team": "a"},
        True,
    )
    assert controller.replicas.update_labels() == []


def test_a_change_that_starts_a_rollout_is_an_event_with_its_causes() -> None:
    causes = ["a rotated Secret", "renderer 0.2.0", "a rotated Secret"]
    replicas = {
        str(number): RUNNING.model_copy(
            update={
                "uid": str(number),
                "name": f"q-{number}",
                "pending": cause,
                "adopting": True,
            }
        )
        for number, cause in enumerate(causes)
    }
    controller = a_controller(replicas=replicas)
    controller.next_orders({})
    expected = (
        "a rotated Secret, renderer 0.2.0: a rollout replaces the pods of 3 replicas"
    )
    assert messages(controller) == [("Normal", "AdoptingChange", expected)]


# Evictions and the end


@pytest.mark.parametrize(
    ("replica", "event"),
    [
        (
            {},
            ("Normal", "ReplicaDeleting", "qwen-0 is being deleted from eu: preempted"),
        ),
        (
            {"started": False, "bound": False},
            ("Normal", "PlacementDropped", "qwen-0 is not started on eu: preempted"),
        ),
    ],
    ids=["a running replica", "an unstarted replica"],
)
def test_an_eviction_is_an_event_with_its_reason(
    replica: dict[str, Any], event: tuple[str, str, str]
) -> None:
    controller = with_replica(**replica)
    controller.evict(Evict(epoch=1, eviction=EVICTION))
    controller.placements.carry_out_evictions()
    assert messages(controller) == [event]


@pytest.mark.parametrize(
    ("bound", "first"),
    [(True, ["forget", "delete"]), (False, ["bound", "forget"])],
    ids=["it knows all", "it does not"],
)
def test_the_scheduler_learns_the_started_replicas_before_it_releases_the_rest(
    *, bound: bool, first: list[str]
) -> None:
    controller = with_replica(bound=bound)
    state_of(controller).deletion_timestamp = AT
    orders = controller.next_orders({})
    assert [each.signal for each in signals(orders)][:2] == first
    assert {tuple(payload["entries"]) for payload in named(orders, "bound")} <= {("r",)}


def test_a_deletion_deletes_each_replica_once_and_passes_a_force_on() -> None:
    controller = with_replica()
    state = state_of(controller)
    state.deletion_timestamp, state.forced = AT, "all"
    orders = controller.next_orders({})
    assert receivers(signals(orders), "delete") == ["modelreplica/ml/qwen-0"]
    (force,) = named(orders, "force")
    assert (force["scope"], force["by"]) == ("all", "ModelDeployment qwen")
    assert state.forced == ""
    again = controller.next_orders({})
    assert (named(again, "delete"), named(again, "force")) == ([], [])
    assert [(each.type, each.reason, each.message) for each in state.conditions] == [
        ("Ready", "Deleting", ""),
        ("Deleting", "WaitingForReplicas", "waits until gone: qwen-0 on eu (Pending)"),
    ]


def test_a_force_without_replicas_applies_to_those_found_later() -> None:
    controller = a_controller(deletion_timestamp=AT, forced="step")
    controller.next_orders({})
    assert state_of(controller).forced == "step"


MANY = [
    RUNNING.model_copy(update={"name": f"q-{number}"})
    for number in range(NAMED_MAX + 2)
]
NAMES = "; ".join(f"q-{number} on eu (Pending)" for number in range(NAMED_MAX))


@pytest.mark.parametrize(
    ("replicas", "silent", "message"),
    [
        (
            [RUNNING.model_copy(update={"message": "drains"})],
            [],
            "qwen-0 on eu (drains)",
        ),
        ([RUNNING], ["q-x"], "qwen-0 on eu (Pending); q-x (does not answer)"),
        (MANY[:NAMED_MAX], [], NAMES),
        (MANY, [], f"{NAMES}; and 2 more"),
    ],
    ids=[
        "its message",
        "its phase, and one that is silent",
        "as many as are named",
        "more",
    ],
)
def test_a_deletion_names_a_few_of_the_replicas_it_waits_for(
    replicas: list[TrackedReplica], silent: list[str], message: str
) -> None:
    assert waiting_message(replicas, silent) == f"waits until gone: {message}"
