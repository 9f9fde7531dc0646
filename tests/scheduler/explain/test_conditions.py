"""Each condition of a deployment, whole, for each state that it can report."""

from typing import Any

import pytest

from scheduler.explain.conditions import (
    cache_condition,
    fully_scheduled,
    no_candidates,
    note_conditions,
    priority_class_condition,
    scheduled,
    warnings_of,
)
from scheduler.model.decision import (
    DecidedCondition,
    Diagnosis,
    ReasonGroup,
    RetainedNote,
)
from scheduler.model.inputs import CacheView
from scheduler.model.policy import PlacementPolicy, SchedulerOptions
from tests.scheduler.builders import deployment

RESOLVED = "ModelCacheResolved"


@pytest.mark.parametrize(
    ("cache", "condition"),
    [
        (CacheView(), None),
        (
            CacheView("Present", "w"),
            DecidedCondition(RESOLVED, "True", "ModelCacheResolved", ""),
        ),
        (
            CacheView("Absent", "w"),
            DecidedCondition(
                RESOLVED,
                "False",
                "ModelCacheNotFound",
                "ModelCache w not found; holding replica placement",
            ),
        ),
        (
            CacheView("Unresolved", "w"),
            DecidedCondition(
                RESOLVED, "False", "ModelCacheUnresolved", "Waiting for ModelCache w"
            ),
        ),
    ],
    ids=["no cache", "present", "absent", "not read yet"],
)
def test_the_cache_condition_for_each_state(
    cache: CacheView, condition: DecidedCondition | None
) -> None:
    assert cache_condition(deployment(cache=cache)) == condition


FULL = ReasonGroup("InsufficientNodes", "are full", 2)
LABELS = ReasonGroup("LabelMismatch", "are elsewhere", 3)
FOOTPRINT = ReasonGroup("CacheFootprint", "have no weights", 5)
TAINTED = ReasonGroup("Tainted", "are tainted", 3)


CHECKED = "of 3 replicas scheduled (checked"


@pytest.mark.parametrize(
    ("want", "placed", "fields", "condition"),
    [
        (
            3,
            0,
            {"invalid": "x"},
            ("False", "InvalidNodeSelector", "Invalid nodeSelector CEL expression: x"),
        ),
        (0, 0, {}, ("True", "ScaledToZero", "0 replicas wanted")),
        (3, 3, {}, ("False", "Scheduling", "3 of 3 replicas scheduled")),
        (
            3,
            3,
            {"observed": True},
            ("True", "ReplicasCreated", "Scheduled 3 of 3 replicas"),
        ),
        (
            3,
            2,
            {"diagnosis": Diagnosis(2, (FULL,), held="wait.")},
            ("False", "Scheduling", "2 of 3 replicas scheduled. wait."),
        ),
        (
            3,
            2,
            {"diagnosis": Diagnosis(2, (FULL,))},
            (
                "False",
                "InsufficientCapacity",
                f"2 {CHECKED} 2 clusters). 0/2 clusters are available: 2 are full.",
            ),
        ),
        (
            3,
            0,
            {"diagnosis": Diagnosis(3, (LABELS,))},
            (
                "False",
                "NoClusters",
                f"0 {CHECKED} 3 clusters). 0/3 clusters are available: 3 are elsewhere.",
            ),
        ),
        (
            3,
            1,
            {"diagnosis": Diagnosis(3, (LABELS,))},
            (
                "False",
                "InsufficientCapacity",
                f"1 {CHECKED} 3 clusters). 0/3 clusters are available: 3 are elsewhere.",
            ),
        ),
        (
            3,
            0,
            {"diagnosis": Diagnosis(5, (LABELS, FULL))},
            (
                "False",
                "InsufficientCapacity",
                (
                    f"0 {CHECKED} 5 clusters). 0/5 clusters are available: 3 are "
                    "elsewhere, 2 are full."
                ),
            ),
        ),
    ],
)
def test_the_scheduled_condition_for_each_state(
    want: int, placed: int, fields: dict[str, Any], condition: tuple[str, str, str]
) -> None:
    given = {"observed": False, "invalid": "", "diagnosis": Diagnosis(), **fields}
    found = scheduled(deployment(want=want), placed, **given)
    assert found == DecidedCondition("ReplicasScheduled", *condition)


@pytest.mark.parametrize(
    ("diagnosis", "none"),
    [
        (Diagnosis(), True),
        (Diagnosis(3, ()), False),
        (Diagnosis(8, (LABELS, FOOTPRINT)), True),
        (Diagnosis(5, (LABELS, FULL)), False),
        (Diagnosis(2, (FULL,)), False),
    ],
    ids=[
        "no cluster",
        "no reason",
        "labels and footprint",
        "one is full",
        "all are full",
    ],
)
def test_a_deployment_has_no_candidates_if_all_fail_its_selectors(
    diagnosis: Diagnosis, none: bool
) -> None:
    assert no_candidates(diagnosis) is none


@pytest.mark.parametrize(
    ("placed", "invalid", "diagnosis", "condition"),
    [
        (3, "", Diagnosis(), ("True", "AllReplicasPlaced", "3 of 3 replicas placed")),
        (5, "", Diagnosis(), ("True", "AllReplicasPlaced", "5 of 3 replicas placed")),
        (
            3,
            "x",
            Diagnosis(),
            (
                "False",
                "InvalidNodeSelector",
                "a nodeSelector CEL expression is invalid",
            ),
        ),
        (2, "", Diagnosis(2, (FULL,), held="wait."), ("False", "FillHeld", "wait.")),
        (2, "", Diagnosis(), ("False", "NoClusters", "0/0 clusters are available.")),
        (
            2,
            "",
            Diagnosis(5, (LABELS, FULL)),
            (
                "False",
                "LabelMismatch",
                "0/5 clusters are available: 3 are elsewhere, 2 are full.",
            ),
        ),
        (
            2,
            "",
            Diagnosis(6, (TAINTED, LABELS)),
            (
                "False",
                "LabelMismatch",
                "0/6 clusters are available: 3 are tainted, 3 are elsewhere.",
            ),
        ),
        (
            2,
            "",
            Diagnosis(7, (LABELS, FULL, FULL)),
            (
                "False",
                "InsufficientNodes",
                "0/7 clusters are available: 3 are elsewhere, 2 are full, 2 are full.",
            ),
        ),
    ],
)
def test_the_reason_is_the_filter_that_rejects_most(
    placed: int, invalid: str, diagnosis: Diagnosis, condition: tuple[str, str, str]
) -> None:
    found = fully_scheduled(deployment(want=3), placed, invalid, diagnosis)
    assert found == DecidedCondition("FullyScheduled", *condition)


def test_each_kind_of_note_is_one_condition_that_names_its_replicas() -> None:
    notes = [
        RetainedNote("Evicted", "r-3", "by a higher priority"),
        RetainedNote("Drifted", "r-2", "other pools"),
        RetainedNote("Drifted", "r-1", "not shown"),
        RetainedNote("CapacityLost", "r-5"),
        RetainedNote("ResizeBlocked", "r-7", "full"),
        RetainedNote("ReplacementBlocked", "r-9", "nowhere"),
        RetainedNote("Unknown", "r-11", "no condition"),
    ]
    assert note_conditions(notes) == [
        DecidedCondition(
            "PlacementDrifted", "True", "Drifted", "r-1, r-2: other pools"
        ),
        DecidedCondition("ResizeBlocked", "True", "ResizeBlocked", "r-7: full"),
        DecidedCondition(
            "ReplacementBlocked", "True", "ReplacementBlocked", "r-9: nowhere"
        ),
        DecidedCondition("CapacityLost", "True", "CapacityLost", "r-5"),
        DecidedCondition("Evicted", "True", "Evicted", "r-3: by a higher priority"),
    ]


def test_the_messages_of_conditions_are_cut() -> None:
    long, options = "x" * 3_000, SchedulerOptions()
    view = deployment(policy=PlacementPolicy(priority_class=long))
    conditions = [
        scheduled(view, 0, observed=False, invalid=long, diagnosis=Diagnosis()),
        *note_conditions([RetainedNote("Evicted", "r", long)]),
        priority_class_condition(view, options),
    ]
    assert [condition and len(condition.message) for condition in conditions] == [
        2_000
    ] * 3


@pytest.mark.parametrize(
    ("profile", "warnings"),
    [
        ("", ()),
        ("default", ()),
        ("weighted", ()),
        (
            "x",
            (
                "spec.scheduling.profile: there is no profile x, so the profile is default",
            ),
        ),
    ],
)
def test_a_profile_that_does_not_exist_is_a_warning(
    profile: str, warnings: tuple[str, ...]
) -> None:
    view = deployment(policy=PlacementPolicy(profile=profile))
    assert warnings_of(view, SchedulerOptions()) == warnings
