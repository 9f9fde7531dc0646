"""The progress that a teardown reports, as a table.

Other tests run the steps on clusters.
"""

from typing import NamedTuple

import pytest

from activities.render.objects.teardown import STEPS
from api_types.messages.cluster_work import AppliedObject, RemainingObject
from api_types.resources.status import LeftBehind
from workflows.entity.failures import NO_FAILURE, Failure
from workflows.model_replica.teardown_progress import (
    Outcome,
    TeardownProgress,
    left_behind,
    named,
)

HELD = RemainingObject(
    id="apps/v1/Deployment/ml/qwen-main",
    why="finalizer example.com/hold, deleted at 2026-11-21T14:00:00Z",
)
POD = RemainingObject(id="v1/Pod/ml/qwen-main-0")
PICKER = RemainingObject(id="apps/v1/Deployment/ml/qwen-epp")
INVENTORY = [
    AppliedObject(key="model-serving-main", id=HELD.id),
    AppliedObject(
        key="model-route", id="gateway.networking.k8s.io/v1/HTTPRoute/ml/qwen"
    ),
    AppliedObject(
        key="epp-clusterrole", id="rbac.authorization.k8s.io/v1/ClusterRole//qwen-epp"
    ),
    AppliedObject(key="epp", id=PICKER.id),
]


def at_step(number: int, outcome: Outcome = "done") -> TeardownProgress:
    progress = TeardownProgress()
    while progress.number < number:
        progress.complete(outcome, "2026-11-21T14:00:00Z")
    return progress


class Said(NamedTuple):
    """A teardown at some point, and the condition that it sets."""

    story: str
    progress: TeardownProgress
    reason: str
    message: str


def waiting(number: int, *items: RemainingObject) -> TeardownProgress:
    progress = at_step(number)
    progress.record_remaining(items)
    return progress


def failing(number: int, kind: str, message: str) -> TeardownProgress:
    progress = at_step(number)
    progress.record_failure(Failure(kind, message))
    return progress


SAID = [
    Said(
        "a step that has just begun",
        at_step(3),
        "TearingDown",
        "step 3 of 12: delete the route",
    ),
    Said(
        "the obstacle to a deletion is named",
        waiting(7, HELD, POD),
        "TearingDown",
        "step 7 of 12: delete the engines; waiting for deletion of Deployment "
        "ml/qwen-main (finalizer example.com/hold, deleted at "
        "2026-11-21T14:00:00Z), Pod ml/qwen-main-0",
    ),
    Said(
        "an unreachable cluster is reported with its error",
        failing(5, "ClusterUnreachable", "cluster eu: no answer"),
        "ClusterUnreachable",
        "step 5 of 12: delete the endpoint picker; retrying: cluster eu: no answer",
    ),
]


@pytest.mark.parametrize("said", SAID, ids=lambda said: said.story)
def test_the_condition_names_the_waiting_step_and_its_reason(said: Said) -> None:
    assert (said.progress.reason(), said.progress.message()) == (
        said.reason,
        said.message,
    )


def test_a_success_after_a_failure_is_not_reported_as_a_failure() -> None:
    progress = failing(5, "ClusterUnreachable", "no answer")
    progress.record_remaining([POD])
    assert (progress.reason(), progress.failure) == ("TearingDown", NO_FAILURE)


def test_every_step_is_shown_with_its_state() -> None:
    progress = at_step(6, "not needed")
    progress.record_remaining([POD])
    states = [(row["number"], row["state"]) for row in progress.shown()["steps"]]
    assert states == [(number, "not needed") for number in range(1, 6)] + [
        (6, "waiting")
    ] + [(n, "pending") for n in range(7, 13)]
    lines = progress.lines()
    assert len([line for line in lines if line.startswith("| ")]) == len(STEPS) + 1
    assert "| 6 | delete the monitors | waiting | Pod ml/qwen-main-0 |" in lines


def test_of_many_objects_some_are_named_and_all_are_counted() -> None:
    items = [RemainingObject(id=f"v1/Pod/ml/p-{n}") for n in range(5)]
    assert named(items) == "Pod ml/p-0, Pod ml/p-1, Pod ml/p-2 and 2 more"


@pytest.mark.parametrize(
    ("story", "progress", "left"),
    [
        ("the objects last seen", waiting(7, POD), [POD.id]),
        (
            "the object that it waits for, and those that it deletes after it",
            waiting(5, PICKER),
            [PICKER.id, INVENTORY[2].id],
        ),
        (
            "objects that it has deleted before are gone",
            waiting(5, RemainingObject(id=INVENTORY[2].id)),
            [INVENTORY[2].id],
        ),
        (
            "unseen, the step's objects in the inventory",
            failing(7, "ServerError", "no"),
            [HELD.id],
        ),
        (
            "nothing of other steps",
            failing(5, "ServerError", "no"),
            [PICKER.id, INVENTORY[2].id],
        ),
        (
            "nothing where the inventory has nothing",
            failing(9, "ServerError", "no"),
            [],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_skipped_step_leaves_only_its_own_objects(
    story: str, progress: TeardownProgress, left: list[str]
) -> None:
    assert [item.id for item in progress.remaining_of_step(INVENTORY)] == left, story


def test_abandoned_objects_are_listed_with_their_cluster_and_the_reason() -> None:
    assert left_behind([HELD, RemainingObject(id=INVENTORY[2].id)], "eu", "forced") == [
        LeftBehind(
            kind="Deployment",
            name="qwen-main",
            namespace="ml",
            location="eu",
            reason="forced; finalizer example.com/hold, deleted at 2026-11-21T14:00:00Z",
        ),
        LeftBehind(
            kind="ClusterRole",
            name="qwen-epp",
            namespace="",
            location="eu",
            reason="forced",
        ),
    ]
