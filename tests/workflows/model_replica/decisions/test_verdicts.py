"""What a replica concludes from its state: conditions, the floor of serving, phase and endpoint."""

from typing import Any, NamedTuple

import pytest

from tests.workflows.model_replica.builders import APPLIED, CLUSTER, a_replica, observed
from workflows.entity.conditions import TRUE
from workflows.entity.failures import Failure
from workflows.model_replica.decisions.status import detailed_phase, endpoint, shared_phase
from workflows.model_replica.decisions.verdicts import Warned, assess

URL = "http://10.0.0.1/ml/qwen-eu-0/v1"
NOT_READY = "engine main has 0 of 1 copies ready, 1 up to date"
NEW = {"was_ready": False, "serving": False, "served": False}


class Case(NamedTuple):
    """A change to a replica that serves; the conditions that are not True after it, by type; whether it serves; warnings."""

    story: str
    changes: dict[str, Any]
    unmet: dict[str, str]
    serving: bool
    warnings: tuple[Warned, ...] = ()


UNREACHABLE = CLUSTER.model_copy(update={"unreachable_for_seconds": 400})
CASES = [
    Case("all is well", {}, {}, serving=True),
    Case("all is well for the first time", NEW, {}, serving=True),
    Case("a newer generation is not applied yet, the old one serves", {"generation": 2},
         {"ModelAccepted": "Deploying", "Ready": "Unavailable"}, serving=True),
    Case("drift does not withdraw the endpoint", {"observed": observed(digest="other")},
         {"ModelAccepted": "Deploying", "Ready": "Unavailable"}, serving=True),
    Case("the last pod is lost", {"observed": observed(ready=0)},
         {"ModelReady": "ModelStarting", "RoutingReady": "Configuring", "Serving": "NotServing", "Ready": "Unavailable"},
         serving=False, warnings=(Warned("ServingLost", NOT_READY),)),
    Case("the cluster is silent for long", {"cluster": UNREACHABLE}, {"Serving": "NotServing", "Ready": "Unavailable"},
         serving=False, warnings=(Warned("ServingLost", "the cluster is unreachable"),)),
    Case("it starts", NEW | {"observed": observed(ready=0)},
         {"ModelReady": "ModelStarting", "RoutingReady": "Configuring", "Serving": "NotServing", "Ready": "Creating"}, serving=False),
    Case("nothing was observed yet", NEW | {"observed": None},
         {"ModelAccepted": "Deploying", "ModelReady": "WaitingForModel", "RoutingReady": "Configuring", "Ready": "Creating"},
         serving=False),
    Case("an apply fails", {"failure": Failure("NameConflict", "taken"), "failure_reason": "NameConflict"},
         {"ModelAccepted": "NameConflict", "Ready": "Unavailable"}, serving=True),
    Case("engines wait for the cache", NEW | {"applied": APPLIED.model_copy(update={"held": "WaitingForCache"})},
         {"ModelAccepted": "WaitingForCache", "ModelReady": "WaitingForModel", "RoutingReady": "Configuring", "Ready": "Creating"},
         serving=False),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_conditions_follow_from_what_was_applied_and_observed(case: Case) -> None:
    assessment = assess(a_replica(**case.changes))
    assert {kind: verdict.reason for kind, verdict in assessment.conditions.items() if verdict.status != TRUE} == case.unmet
    assert assessment.serving is case.serving
    assert assessment.warnings == case.warnings


def test_a_missed_progress_deadline_is_reported_once() -> None:
    late = observed(ready=0)
    late = late.model_copy(update={"workloads": [late.workloads[0].model_copy(update={"overdue": True})]})
    first = assess(a_replica(**NEW, observed=late))
    assert [warning.reason for warning in first.warnings] == ["ProgressDeadlineExceeded"]
    assert assess(a_replica(**NEW, observed=late, overdue=first.overdue)).warnings == ()


PHASES: list[tuple[str, dict[str, Any], tuple[str, str], str]] = [
    ("not applied", NEW | {"applied": None, "apply_started": False}, ("Pending", "Pending"), ""),
    ("applying", NEW | {"applied": None}, ("Applying", "Progressing"), ""),
    ("starting", NEW, ("Starting", "Progressing"), ""),
    ("a pod is lost, others serve", {}, ("Degraded", "Degraded"), URL),
    ("rolling out", {"generation": 2}, ("Updating", "Progressing"), URL),
    ("invalid from the start", NEW | {"failure": Failure("InvalidInput", "no")}, ("Failed", "Failed"), ""),
    ("the cluster is silent for long", {"cluster": UNREACHABLE, "serving": False}, ("Unreachable", "Degraded"), ""),
    ("deleted", {"deletion_timestamp": "2026-11-21T14:00:00Z"}, ("Terminating", "Deleting"), ""),
]


@pytest.mark.parametrize(("story", "changes", "phases", "url"), PHASES, ids=[story for story, *_ in PHASES])
def test_phase_and_endpoint(story: str, changes: dict[str, Any], phases: tuple[str, str], url: str) -> None:
    replica = a_replica(**changes)
    assert (detailed_phase(replica), shared_phase(replica)) == phases, story
    assert endpoint(replica) == url
