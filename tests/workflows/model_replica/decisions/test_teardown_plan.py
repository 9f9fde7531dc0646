"""The next step of a teardown, as a table.

Steps without objects, clusters that are gone, `force`.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from activities.render.objects.teardown import (
    COPIES,
    DRAIN,
    RELEASE,
    SWEEP,
    WITHDRAW,
)
from tests.workflows.model_replica.builders import CLUSTER, a_replica
from workflows.model_replica.decisions.teardown_plan import (
    FORCED,
    FORCED_LIMIT,
    StepDecision,
    decide_after_failure,
    decide_step,
)
from workflows.model_replica.teardown_progress import TeardownProgress

NOW = datetime(2026, 11, 21, 14, tzinfo=UTC)
LATER, EARLIER = NOW + timedelta(minutes=5), NOW - timedelta(minutes=5)
ROUTE, ENGINES = 3, 7

ATTEMPT, NONE_NEEDED, SKIP = (
    StepDecision("attempt"),
    StepDecision("none needed"),
    StepDecision("skip"),
)
LAST = StepDecision("attempt", limit=FORCED_LIMIT)
GONE = StepDecision("abandon", "the InferenceCluster was deleted")
UNCONNECTED = CLUSTER.model_copy(update={"connection": None})
DELETED = CLUSTER.model_copy(update={"present": False})
LOST = DELETED.model_copy(update={"gone": True})
WITH_CLUSTER = StepDecision(
    "gone",
    "the cluster does not exist any more, as its cloud says, and nothing of what was on it",
)


class Case(NamedTuple):
    """A step of a replica with one Deployment, the changed fields, the number of
    attempts, and the decision.
    """

    story: str
    number: int
    changes: dict[str, Any]
    attempts: int
    decision: StepDecision


CASES = [
    Case(
        "the endpoint is withdrawn by a report", WITHDRAW, {}, 0, StepDecision("report")
    ),
    Case("requests may be running", DRAIN, {}, 0, StepDecision("drain")),
    Case(
        "running requests are not waited for when that is forced",
        DRAIN,
        {"forced": "step"},
        0,
        SKIP,
    ),
    Case(
        "a replica that never served has no requests",
        DRAIN,
        {"served": False},
        0,
        NONE_NEEDED,
    ),
    Case(
        "a replica that never served has nothing to skip either",
        DRAIN,
        {"served": False, "forced": "step"},
        0,
        NONE_NEEDED,
    ),
    Case(
        "a replica that was reset may have served before",
        DRAIN,
        {"served": False, "reset": True},
        0,
        StepDecision("drain"),
    ),
    Case(
        "a replica that was reset may have applied objects before",
        SWEEP,
        {"apply_started": False, "reset": True},
        0,
        ATTEMPT,
    ),
    Case("the inventory has nothing of the step", ROUTE, {}, 0, NONE_NEEDED),
    Case("the inventory has objects of the step", ENGINES, {}, 0, ATTEMPT),
    Case("the sweep always follows an apply", SWEEP, {}, 0, ATTEMPT),
    Case(
        "an interrupted apply may have created anything",
        ROUTE,
        {"inventory_complete": False},
        0,
        ATTEMPT,
    ),
    Case(
        "a replica that was reset has forgotten an earlier inventory",
        COPIES,
        {"reset": True},
        0,
        ATTEMPT,
    ),
    Case("nothing was ever applied", SWEEP, {"apply_started": False}, 0, NONE_NEEDED),
    Case(
        "nothing was ever applied to a deleted cluster",
        SWEEP,
        {"apply_started": False, "cluster": DELETED},
        0,
        NONE_NEEDED,
    ),
    Case(
        "the cluster is unknown",
        ENGINES,
        {"cluster": None},
        0,
        StepDecision("wait for cluster"),
    ),
    Case(
        "the cluster is not connected",
        ENGINES,
        {"cluster": UNCONNECTED},
        2,
        StepDecision("wait for cluster"),
    ),
    Case(
        "forced without a cluster",
        ENGINES,
        {"cluster": UNCONNECTED, "forced": "step"},
        0,
        StepDecision(
            "abandon", "the teardown was forced while the cluster was not connected"
        ),
    ),
    Case("the cluster was deleted", ENGINES, {"cluster": DELETED}, 0, GONE),
    Case("the cluster itself is gone", ENGINES, {"cluster": LOST}, 0, WITH_CLUSTER),
    Case(
        "no request runs on a cluster that is gone",
        DRAIN,
        {"cluster": LOST},
        0,
        NONE_NEEDED,
    ),
    Case(
        "the backoff holds",
        ENGINES,
        {"retry_at": LATER.isoformat()},
        1,
        StepDecision("wait", check_at=LATER),
    ),
    Case("the backoff is over", ENGINES, {"retry_at": EARLIER.isoformat()}, 1, ATTEMPT),
    Case(
        "a step is tried once before it is skipped",
        ENGINES,
        {"forced": "step"},
        0,
        LAST,
    ),
    Case(
        "a forced step is skipped after an attempt",
        ENGINES,
        {"forced": "step"},
        1,
        SKIP,
    ),
    Case(
        "force does not wait for the backoff",
        ENGINES,
        {"forced": "all", "retry_at": LATER.isoformat()},
        1,
        SKIP,
    ),
    Case(
        "capacity is released last",
        RELEASE,
        {"cluster": None},
        0,
        StepDecision("release"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_the_next_action_follows_from_the_state(case: Case) -> None:
    progress = TeardownProgress(number=case.number, attempts=case.attempts)
    assert (
        decide_step(a_replica(teardown=progress, **case.changes), NOW) == case.decision
    )


@pytest.mark.parametrize(
    ("forced", "decision"),
    [
        ("", StepDecision("wait")),
        ("step", SKIP),
        ("all", StepDecision("abandon", "the teardown was forced")),
    ],
)
def test_force_takes_effect_after_a_failure(
    forced: str, decision: StepDecision
) -> None:
    assert decide_after_failure(a_replica(forced=forced)) == decision


@pytest.mark.parametrize(
    ("until", "decision"),
    [(LATER, StepDecision("wait", check_at=LATER)), (EARLIER, StepDecision("done"))],
    ids=["they have time left", "their time is over"],
)
def test_running_requests_get_their_drain_time(
    until: datetime, decision: StepDecision
) -> None:
    assert (
        decide_step(
            a_replica(
                teardown=TeardownProgress(number=DRAIN, drain_until=until.isoformat())
            ),
            NOW,
        )
        == decision
    )


@pytest.mark.parametrize(
    ("seconds", "decision"),
    [
        (0, LAST),
        (2, LAST._replace(limit=FORCED_LIMIT - timedelta(seconds=2))),
        (5, StepDecision("abandon", FORCED)),
    ],
)
def test_all_steps_of_a_forced_teardown_share_one_limit(
    seconds: int, decision: StepDecision
) -> None:
    forced_at = (NOW - timedelta(seconds=seconds)).isoformat()
    assert (
        decide_step(
            a_replica(
                teardown=TeardownProgress(number=ENGINES, forced_at=forced_at),
                forced="all",
            ),
            NOW,
        )
        == decision
    )
