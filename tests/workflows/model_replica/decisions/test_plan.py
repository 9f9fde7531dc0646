"""When a replica applies, and why, as a table."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from tests.workflows.model_replica.builders import (
    APPLIED,
    CLUSTER,
    DEPLOYMENT,
    SECRET_COPY,
    a_replica,
    observed,
)
from workflows.model_replica.decisions.plan import (
    DRIFT_DELAY,
    ApplyDecision,
    decide_apply,
    recent_repairs,
)

NOW = datetime(2026, 11, 21, 14, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
JUST_NOW = (NOW - timedelta(seconds=1)).isoformat()
LONG_AGO = (NOW - timedelta(minutes=1)).isoformat()
YESTERDAY = (NOW - timedelta(days=1)).isoformat()
WITH_COPY = APPLIED.model_copy(update={"inventory": [DEPLOYMENT, SECRET_COPY]})
DRIFTED = observed(digest="other")


SILENT = CLUSTER.model_copy(update={"connected": False})


class Case(NamedTuple):
    """A change to a serving replica, and the decision."""

    story: str
    changes: dict[str, Any]
    decision: ApplyDecision


# The inputs of an apply of `a_replica()`.
AT_REST = a_replica().inputs()
CASES = [
    Case("nothing changed", {}, ApplyDecision(None, "")),
    Case("nothing was applied", {"applied": None}, ApplyDecision("spec", "")),
    Case("a newer generation", {"generation": 2}, ApplyDecision("spec", "")),
    Case(
        "another volume claim",
        {"cache_claim": "claim", "applied_inputs": AT_REST},
        ApplyDecision("spec", ""),
    ),
    Case(
        "other flags of the picker",
        {"picker_flags": {"v": "4"}, "applied_inputs": AT_REST},
        ApplyDecision("spec", ""),
    ),
    Case(
        "another renderer or other facts of the cluster",
        {"applied_inputs": AT_REST._replace(facts="f")},
        ApplyDecision("spec", ""),
    ),
    Case(
        "pods may be replaced once more",
        {"adoption": 1, "applied_inputs": AT_REST},
        ApplyDecision("spec", ""),
    ),
    Case(
        "unknown inputs of the last apply",
        {"applied_inputs": None},
        ApplyDecision("spec", ""),
    ),
    Case(
        "the backoff of a failure holds, also for a newer generation",
        {"generation": 2, "retry_at": LATER.isoformat(), "drift_since": LONG_AGO},
        ApplyDecision(None, LONG_AGO, LATER),
    ),
    Case(
        "the backoff is over",
        {"generation": 2, "retry_at": LONG_AGO},
        ApplyDecision("spec", ""),
    ),
    Case(
        "nothing was observed",
        {"observed": None, "drift_since": LONG_AGO},
        ApplyDecision(None, ""),
    ),
    Case(
        "drift is new",
        {"observed": DRIFTED},
        ApplyDecision(None, NOW.isoformat(), NOW + DRIFT_DELAY),
    ),
    Case(
        "drift may still be an old observation",
        {"observed": DRIFTED, "drift_since": JUST_NOW},
        ApplyDecision(None, JUST_NOW, NOW + DRIFT_DELAY - timedelta(seconds=1)),
    ),
    Case(
        "drift persists",
        {"observed": DRIFTED, "drift_since": LONG_AGO},
        ApplyDecision("drift", LONG_AGO),
    ),
    Case(
        "the first repair of a fight was just now: the next one waits for 4 s after it",
        {
            "observed": DRIFTED,
            "drift_since": LONG_AGO,
            "drift_repairs": 1,
            "drift_repaired_at": JUST_NOW,
        },
        ApplyDecision(None, LONG_AGO, NOW + timedelta(seconds=3)),
    ),
    Case(
        "the waits of a fight grow up to 5 min",
        {
            "observed": DRIFTED,
            "drift_since": LONG_AGO,
            "drift_repairs": 40,
            "drift_repaired_at": JUST_NOW,
        },
        ApplyDecision(None, LONG_AGO, NOW + timedelta(seconds=299)),
    ),
    Case(
        "the wait of a fight is over",
        {
            "observed": DRIFTED,
            "drift_since": LONG_AGO,
            "drift_repairs": 3,
            "drift_repaired_at": LONG_AGO,
        },
        ApplyDecision("drift", LONG_AGO),
    ),
    Case(
        "drift that comes back after a long time is repaired at once",
        {
            "observed": DRIFTED,
            "drift_since": LONG_AGO,
            "drift_repairs": 40,
            "drift_repaired_at": YESTERDAY,
        },
        ApplyDecision("drift", LONG_AGO),
    ),
    Case("drift is over", {"drift_since": LONG_AGO}, ApplyDecision(None, "")),
    Case(
        "copies are due",
        {"applied": WITH_COPY, "copies_due": LONG_AGO},
        ApplyDecision("copies", ""),
    ),
    Case(
        "copies are due on a cluster that does not answer",
        {"applied": WITH_COPY, "copies_due": LONG_AGO, "cluster": SILENT},
        ApplyDecision(None, ""),
    ),
    Case(
        "drift was seen on a cluster that does not answer",
        {"observed": DRIFTED, "drift_since": LONG_AGO, "cluster": SILENT},
        ApplyDecision(None, LONG_AGO),
    ),
    Case(
        "a newer generation on a cluster that does not answer",
        {"generation": 2, "cluster": SILENT},
        ApplyDecision("spec", ""),
    ),
    Case("copies are not due", {"applied": WITH_COPY}, ApplyDecision(None, "")),
    Case(
        "without copies none are due", {"copies_due": LONG_AGO}, ApplyDecision(None, "")
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_the_apply_decision_follows_from_the_applied_and_observed_state(
    case: Case,
) -> None:
    replica = a_replica(**case.changes)
    before = replica.model_dump()
    assert decide_apply(replica, NOW) == case.decision
    assert replica.model_dump() == before, "a decision changes nothing"


def test_a_field_that_another_controller_rewrites_is_overwritten_ever_more_rarely() -> (
    None
):
    replica, repaired = a_replica(observed=DRIFTED), []
    for second in range(3600):
        now = NOW + timedelta(seconds=second)
        decision = decide_apply(replica, now)
        replica.drift_since = decision.drift_since
        if decision.reason == "drift":
            repaired.append(second)
            replica.drift_repairs, replica.drift_repaired_at = (
                recent_repairs(replica, now) + 1,
                now.isoformat(),
            )
            replica.drift_since = ""
    waits = [later - earlier for earlier, later in itertools.pairwise(repaired)]
    assert repaired[0] == DRIFT_DELAY.total_seconds()
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (4, 300)
