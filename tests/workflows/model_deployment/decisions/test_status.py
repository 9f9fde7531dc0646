"""The conditions of a deployment as pure functions of its state."""

from typing import Any

import pytest

from api_types import labels
from api_types.messages.entities import ReplicaChanged
from api_types.messages.scheduling import PlacedCondition
from api_types.resources.status import Condition
from scheduler import template_digest
from workflows.model_deployment.decisions.status import (
    conditions_of,
    pending_changes,
    status_of,
    without_retracted,
)
from workflows.model_deployment.state import DeploymentState, TrackedReplica

AT = "2026-01-01T00:00:00Z"


def scheduler_conditions(*types: str) -> list[PlacedCondition]:
    return [PlacedCondition(type=each, status="True", reason=each) for each in types]


RETRACTED = [
    (
        "a condition missing from the new answer ends",
        ["FullyScheduled", "Evicted"],
        ["FullyScheduled"],
        ["Ready", "FullyScheduled"],
    ),
    (
        "a condition in both stays",
        ["Evicted"],
        ["Evicted"],
        ["Ready", "FullyScheduled", "Evicted"],
    ),
    (
        "a condition of another source stays",
        [],
        [],
        ["Ready", "FullyScheduled", "Evicted"],
    ),
]


@pytest.mark.parametrize(
    ("before", "now", "left"),
    [row[1:] for row in RETRACTED],
    ids=[row[0] for row in RETRACTED],
)
def test_a_condition_of_the_scheduler_ends_when_its_new_answer_lacks_it(
    before: list[str], now: list[str], left: list[str]
) -> None:
    held = [
        Condition(type=each, status="True", reason=each, last_transition_time=AT)
        for each in ("Ready", "FullyScheduled", "Evicted")
    ]
    found = without_retracted(
        held, scheduler_conditions(*before), scheduler_conditions(*now)
    )
    assert [condition.type for condition in found] == left


PENDING = TrackedReplica(uid="a", name="a", cluster="c", index=0, generation=2)
STARTING = PENDING.model_copy(update={"started": True, "message": "pulls its image"})
OUTDATED = STARTING.model_copy(update={"ready": True, "applied_generation": 1})
READY = OUTDATED.model_copy(update={"uid": "b", "name": "b", "applied_generation": 2})
DELETED = STARTING.model_copy(
    update={"uid": "c", "name": "c", "deletion_reason": "Deleted"}
)
PLACED = PlacedCondition(type="ReplicasScheduled", status="True", reason="Placed")
SHORT = PlacedCondition(
    type="ReplicasScheduled",
    status="False",
    reason="InsufficientCapacity",
    message="1 of 2 placed",
)
NOWHERE = PlacedCondition(
    type="ReplicasScheduled",
    status="False",
    reason="NoClusters",
    message="none is Ready",
)
UNREADABLE = PlacedCondition(
    type="ReplicasScheduled",
    status="False",
    reason="InvalidNodeSelector",
    message="line 1",
)

# The state; the reasons of ReplicasScheduled and ReplicasReady; the reason and message
# of Ready.
TABLE: list[
    tuple[str, int, list[TrackedReplica], dict[str, Any], tuple[str, str, str, str]]
] = [
    (
        "nothing is wanted",
        0,
        [],
        {},
        ("ScaledToZero", "ScaledToZero", "ScaledToZero", ""),
    ),
    (
        "the scheduler has not answered",
        1,
        [],
        {"answered": False},
        (
            "Scheduling",
            "NoReplicasScheduled",
            "Creating",
            "Scheduling: 0 of 1 replicas; waiting for the scheduler",
        ),
    ),
    (
        "there is not enough capacity",
        2,
        [READY],
        {"shortfall": 1, "scheduler_conditions": [SHORT]},
        (
            "InsufficientCapacity",
            "AllReplicasReady",
            "Unavailable",
            "InsufficientCapacity: 1 of 2 placed",
        ),
    ),
    (
        "nothing is started yet",
        1,
        [PENDING],
        {},
        ("Scheduling", "ModelStarting", "Creating", "Scheduling: 1 of 1 replicas"),
    ),
    (
        "a replica is starting",
        1,
        [STARTING],
        {},
        (
            "ReplicasCreated",
            "ModelStarting",
            "Creating",
            "ModelStarting: 0 of 1 ready; a on c: pulls its image",
        ),
    ),
    (
        "one of two is ready",
        2,
        [STARTING, READY],
        {},
        (
            "ReplicasCreated",
            "ModelStarting",
            "Unavailable",
            "ModelStarting: 1 of 2 ready; a on c: pulls its image",
        ),
    ),
    (
        "a replica has an older template",
        1,
        [OUTDATED],
        {},
        (
            "ReplicasCreated",
            "AllReplicasReady",
            "Unavailable",
            "rolling out a new generation",
        ),
    ),
    (
        "steps are left",
        1,
        [READY],
        {"more": True},
        (
            "ReplicasCreated",
            "AllReplicasReady",
            "Unavailable",
            "rolling out a new generation",
        ),
    ),
    (
        "there is no cluster any more",
        1,
        [READY],
        {"scheduler_conditions": [NOWHERE]},
        ("NoClusters", "AllReplicasReady", "Unavailable", "NoClusters: none is Ready"),
    ),
    (
        "the selectors cannot be read, running replicas are kept",
        1,
        [READY],
        {"scheduler_conditions": [UNREADABLE]},
        (
            "InvalidNodeSelector",
            "AllReplicasReady",
            "Unavailable",
            "InvalidNodeSelector: line 1",
        ),
    ),
    (
        "all are ready, one more is being deleted",
        1,
        [READY, DELETED],
        {},
        ("ReplicasCreated", "AllReplicasReady", "Available", ""),
    ),
]


@pytest.mark.parametrize(
    ("wanted", "replicas", "fields", "expected"),
    [row[1:] for row in TABLE],
    ids=[row[0] for row in TABLE],
)
def test_conditions_follow_from_the_replicas_and_the_last_answer(
    wanted: int,
    replicas: list[TrackedReplica],
    fields: dict[str, Any],
    expected: tuple[str, str, str, str],
) -> None:
    tracked = {replica.uid: replica for replica in replicas}
    state = DeploymentState(
        spec={"replicas": wanted},
        replicas=tracked,
        **{"scheduler_conditions": [PLACED], **fields},
    )
    conditions = dict(conditions_of(state))
    ready = conditions["Ready"]
    assert (
        conditions["ReplicasScheduled"].reason,
        conditions["ReplicasReady"].reason,
        ready.reason,
        ready.message,
    ) == expected
    assert (ready.status == "True") == (ready.reason == "Available")


WAITS = "0 of 1 ready; a on c: pulls its image"
OBSERVED: list[tuple[str, TrackedReplica, list[tuple[str, str, str, str]]]] = [
    (
        "one is observed and not Ready",
        STARTING,
        [
            (
                "ReplicasScheduled",
                "True",
                "ReplicasCreated",
                "Scheduled 1 of 1 replicas",
            ),
            ("ReplicasReady", "False", "ModelStarting", WAITS),
            ("Ready", "False", "Creating", f"ModelStarting: {WAITS}"),
        ],
    ),
    (
        "it is Ready",
        READY,
        [
            (
                "ReplicasScheduled",
                "True",
                "ReplicasCreated",
                "Scheduled 1 of 1 replicas",
            ),
            ("ReplicasReady", "True", "AllReplicasReady", "1 of 1 ready"),
            ("Ready", "True", "Available", ""),
        ],
    ),
]


@pytest.mark.parametrize(
    ("replica", "expected"),
    [row[1:] for row in OBSERVED],
    ids=[row[0] for row in OBSERVED],
)
def test_the_conditions_of_one_replica_in_full(
    replica: TrackedReplica, expected: list[tuple[str, str, str, str]]
) -> None:
    state = DeploymentState(
        spec={"replicas": 1},
        replicas={replica.uid: replica},
        scheduler_conditions=[PLACED],
    )
    assert [(kind, *verdict) for kind, verdict in conditions_of(state)] == expected


def test_the_endpoint_of_a_serving_replica_is_shown() -> None:
    url = "http://10.0.0.1/ml/b/v1"
    serving = READY.reported(
        ReplicaChanged(
            name="b",
            uid="b",
            sequence=1,
            phase="Ready",
            ready=True,
            serving=True,
            endpoint=url,
        )
    )
    (placement,) = status_of(
        DeploymentState(spec=None, replicas={"b": serving}), "qwen"
    )["placements"]
    assert (placement["replica"], placement["endpoint"], placement["ready"]) == (
        "b",
        url,
        True,
    )


def test_other_messages_of_the_scheduler_are_shown_first_and_verbatim() -> None:
    drifted = PlacedCondition(
        type="PlacementDrifted",
        status="True",
        reason="Drifted",
        message="a no longer fits",
    )
    state = DeploymentState(
        spec={"replicas": 1},
        replicas={"b": READY},
        scheduler_conditions=[PLACED, drifted],
    )
    (first, *others) = conditions_of(state)
    assert first == ("PlacementDrifted", ("True", "Drifted", "a no longer fits"))
    assert [kind for kind, _ in others] == [
        "ReplicasScheduled",
        "ReplicasReady",
        "Ready",
    ]


# The whole status

SPEC: dict[str, Any] = {"replicas": 2, "template": {"spec": {"engines": []}}}
REVISION = {"generation": 1, "replaced": AT, "template": {}}
SHOWN_READY = {
    "replica": "b",
    "cluster": "c",
    "index": 1,
    "phase": "Ready",
    "ready": True,
    "endpoint": "http://b",
    "message": "",
}
SHOWN_DELETED = {
    "replica": "c",
    "cluster": "c",
    "index": 0,
    "phase": "Terminating",
    "ready": False,
    "endpoint": "",
    "message": "drains",
}
SERVING = {"index": 1, "phase": "Ready", "endpoint": "http://b", "message": ""}
CURRENT_TEMPLATE = template_digest(SPEC["template"]["spec"], 7)
PROGRESS = {
    "templateGeneration": 2,
    "updated": 1,
    "updatedReady": 1,
    "total": 1,
    "paused": False,
    "revisions": [],
}
STATUSES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("without a spec", {"spec": None}, {}),
    (
        "with all that is optional",
        {
            "adoption": 7,
            "revisions": [REVISION],
            "last_scale": {"replicas": 2, "by": "ann", "at": AT},
            "scheduler_conditions": [PLACED],
            "spec": {**SPEC, "rollout": {"paused": True}},
            "timings": {"generation": 3, "accepted": 5.0},
            "template_generation": 3,
            "pending": "a rotated Secret",
            "entry": {"template": CURRENT_TEMPLATE},
            "adopted": 7,
        },
        {
            "rollout": {
                **PROGRESS,
                "templateGeneration": 3,
                "paused": True,
                "adoption": 7,
                "revisions": [1],
                "pending": ["a rotated Secret changes 1 replica"],
            },
            "pace": {"generation": 3, "placedSeconds": None, "readySeconds": None},
            "lastScale": {"replicas": 2, "by": "ann", "at": AT, "requestId": ""},
        },
    ),
    (
        "placed and Ready after some time",
        {
            "timings": {
                "generation": 3,
                "accepted": 5.0,
                "placed_seconds": 0.12349,
                "ready_seconds": 2,
            }
        },
        {
            "rollout": PROGRESS,
            "pace": {"generation": 3, "placedSeconds": 0.123, "readySeconds": 2},
        },
    ),
    (
        "with another template",
        {"entry": {"template": "another"}},
        {"rollout": {**PROGRESS, "updated": 0, "updatedReady": 0}},
    ),
    (
        "not Ready with the present template",
        {"applied_generation": 1},
        {"rollout": {**PROGRESS, "updatedReady": 0}},
    ),
]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [row[1:] for row in STATUSES],
    ids=[row[0] for row in STATUSES],
)
def test_the_status_has_counts_replicas_and_the_progress_of_the_rollout(
    fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    of_replica = {
        name: value
        for name, value in fields.items()
        if name in TrackedReplica.model_fields and name != "adoption"
    }
    replicas = {
        "b": READY.model_copy(update={**SERVING, **of_replica}),
        "c": DELETED.model_copy(update={"message": "drains"}),
    }
    of_state = {name: value for name, value in fields.items() if name not in of_replica}
    state = DeploymentState(
        **{"spec": SPEC, "template_generation": 2, "replicas": replicas, **of_state}
    )
    assert status_of(state, "qwen") == {
        "replicas": {"total": 1, "ready": 1},
        "selector": f"{labels.DEPLOYMENT}=qwen",
        "placements": [SHOWN_READY, SHOWN_DELETED],
        **expected,
    }


def test_replicas_with_a_pending_rollout_are_counted_by_cause() -> None:
    causes = ["b", "a", "", "b"]
    staying = [
        READY.model_copy(update={"uid": str(number), "pending": cause})
        for number, cause in enumerate(causes)
    ]
    assert pending_changes(staying) == ["a changes 1 replica", "b changes 2 replicas"]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"spec": {"replicas": 2}}, 2),
        ({"spec": {"replicas": 2}, "deletion_timestamp": AT}, 0),
        ({}, 0),
    ],
    ids=[
        "the number in the spec",
        "none while it is being deleted",
        "none without a spec",
    ],
)
def test_the_desired_number_of_replicas(fields: dict[str, Any], wanted: int) -> None:
    assert DeploymentState(**fields).wanted == wanted
