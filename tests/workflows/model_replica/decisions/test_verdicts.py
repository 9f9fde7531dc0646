"""The conclusions of a replica from its state.

Conditions, the serving floor, phase and endpoint.
"""

from typing import Any, NamedTuple

import pytest

from api_types.messages.cluster_work import ClusterFacts
from tests.workflows.model_replica.builders import APPLIED, CLUSTER, a_replica, observed
from workflows.entity.conditions import FALSE, TRUE, Verdict
from workflows.entity.failures import Failure
from workflows.model_replica.decisions.status import (
    detailed_phase,
    endpoint,
    shared_phase,
)
from workflows.model_replica.decisions.verdicts import Warned, assess

URL = "http://10.0.0.1/ml/qwen-eu-0/v1"
NOT_READY = "engine main has 0 of 1 copies ready, 1 up to date"
NOT_ROUTED = "Service qwen-1a2b3c4d has no ready endpoint"
NOT_ANSWERING = (
    "neither the API server nor the gateway of InferenceCluster eu has answered for "
    "more than 400 s; see `modelplane describe inferencecluster/eu`"
)
NOT_CACHED = (
    "ModelCache ml/ does not exist, or has not answered yet; engines on eu wait for it"
)
NEW = {"was_ready": False, "serving": False, "served": False}


class Case(NamedTuple):
    """A change to a serving replica; reason and message of its conditions that are not
    True; whether it serves; warnings.
    """

    story: str
    changes: dict[str, Any]
    unmet: dict[str, tuple[str, str]]
    serving: bool
    warnings: tuple[Warned, ...] = ()


WITHOUT_GATEWAY = CLUSTER.model_copy(
    update={"facts": ClusterFacts(gateway_message="Gateway does not exist")}
)
UNREACHABLE = CLUSTER.model_copy(update={"unreachable_for_seconds": 400})
CONFLICT = {
    "failure": Failure("NameConflict", "Deployment ml/x is another's"),
    "failure_reason": "NameConflict",
}
STARTS = {
    "ModelReady": ("ModelStarting", NOT_READY),
    "RoutingReady": ("Configuring", NOT_ROUTED),
}
HELD = {
    "serving": False,
    "applied": APPLIED.model_copy(update={"held": "WaitingForCache"}),
}
NOT_ALL_UPDATED = "engine main has 1 of 1 copies ready, 1 up to date"
ONE_OF_TWO = observed(
    workloads=[observed().workloads[0].model_copy(update={"desired": 2, "total": 2})]
)
CASES = [
    Case("all is well", {}, {}, serving=True),
    Case("all is well for the first time", NEW, {}, serving=True),
    Case(
        "a newer generation is not applied yet, the old one serves",
        {"generation": 2},
        {
            "ModelAccepted": ("Deploying", "generation 2 is not applied yet"),
            "Ready": ("Unavailable", "generation 2 is not applied yet"),
        },
        serving=True,
    ),
    Case(
        "drift does not withdraw the endpoint",
        {"observed": observed(digest="other")},
        {
            "ModelAccepted": (
                "Deploying",
                "not observed as applied yet: model-serving-main",
            ),
            "Ready": ("Unavailable", "not observed as applied yet: model-serving-main"),
        },
        serving=True,
    ),
    Case(
        "the last pod is lost",
        {"observed": observed(ready=0)},
        STARTS
        | {"Serving": ("NotServing", NOT_READY), "Ready": ("Unavailable", NOT_READY)},
        serving=False,
        warnings=(Warned("ServingLost", NOT_READY),),
    ),
    Case(
        "the cluster is silent for long",
        {"cluster": UNREACHABLE},
        {
            "Serving": ("NotServing", NOT_ANSWERING),
            "Ready": ("Unavailable", NOT_ANSWERING),
        },
        serving=False,
        warnings=(Warned("ServingLost", NOT_ANSWERING),),
    ),
    Case(
        "the cluster is silent for long, and had no ready pod before",
        {"cluster": UNREACHABLE, "observed": observed(ready=0)},
        STARTS
        | {
            "Serving": ("NotServing", NOT_ANSWERING),
            "Ready": ("Unavailable", NOT_ANSWERING),
        },
        serving=False,
        warnings=(Warned("ServingLost", NOT_ANSWERING),),
    ),
    Case(
        "the facts of the cluster are unknown",
        NEW | {"cluster": CLUSTER.model_copy(update={"facts": None})},
        {
            "ModelAccepted": (
                "WaitingForCluster",
                "InferenceCluster eu is not connected",
            ),
            "ModelReady": ("WaitingForModel", ""),
            "RoutingReady": ("Configuring", ""),
            "Ready": ("Creating", "InferenceCluster eu is not connected"),
        },
        serving=False,
    ),
    Case(
        "it starts",
        NEW | {"observed": observed(ready=0)},
        STARTS
        | {"Serving": ("NotServing", NOT_READY), "Ready": ("Creating", NOT_READY)},
        serving=False,
    ),
    Case(
        "nothing was observed yet",
        NEW | {"observed": None},
        {
            "ModelAccepted": (
                "Deploying",
                "waiting for the first observation of the cluster",
            ),
            "ModelReady": ("WaitingForModel", ""),
            "RoutingReady": ("Configuring", ""),
            "Ready": ("Creating", "waiting for the first observation of the cluster"),
        },
        serving=False,
    ),
    Case(
        "an apply fails",
        CONFLICT,
        {
            "ModelAccepted": ("NameConflict", "Deployment ml/x is another's"),
            "Ready": ("Unavailable", "Deployment ml/x is another's"),
        },
        serving=True,
    ),
    Case(
        "an apply fails and the last pod is lost",
        CONFLICT | {"observed": observed(ready=0)},
        STARTS
        | {
            "ModelAccepted": ("NameConflict", "Deployment ml/x is another's"),
            "Serving": ("NotServing", NOT_READY),
            "Ready": ("Unavailable", "Deployment ml/x is another's"),
        },
        serving=False,
        warnings=(Warned("ServingLost", NOT_READY),),
    ),
    Case(
        "engines wait for the cache",
        NEW | {"applied": APPLIED.model_copy(update={"held": "WaitingForCache"})},
        {
            "ModelAccepted": ("WaitingForCache", NOT_CACHED),
            "ModelReady": ("WaitingForModel", ""),
            "RoutingReady": ("Configuring", ""),
            "Ready": ("Creating", NOT_CACHED),
        },
        serving=False,
    ),
    Case(
        "all earlier pods are back while new ones wait for the cache",
        HELD,
        {
            "ModelAccepted": ("WaitingForCache", NOT_CACHED),
            "Ready": ("Unavailable", NOT_CACHED),
        },
        serving=True,
    ),
    Case(
        "an earlier pod is back while new ones wait for the cache",
        HELD | {"observed": ONE_OF_TWO},
        {
            "ModelAccepted": ("WaitingForCache", NOT_CACHED),
            "ModelReady": ("ModelStarting", NOT_ALL_UPDATED),
            "Serving": ("NotServing", NOT_ALL_UPDATED),
            "Ready": ("Unavailable", NOT_CACHED),
        },
        serving=False,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_conditions_follow_from_the_applied_and_observed_state(case: Case) -> None:
    assessment = assess(a_replica(**case.changes))
    unmet = {
        kind: verdict
        for kind, verdict in assessment.conditions.items()
        if verdict.status != TRUE
    }
    assert unmet == {
        kind: Verdict(FALSE, *expected) for kind, expected in case.unmet.items()
    }
    assert assessment.serving is case.serving
    assert assessment.warnings == case.warnings


def test_a_missed_progress_deadline_is_reported_once() -> None:
    late = observed(ready=0)
    late = late.model_copy(
        update={"workloads": [late.workloads[0].model_copy(update={"overdue": True})]}
    )
    first = assess(a_replica(**NEW, observed=late))
    assert [warning.reason for warning in first.warnings] == [
        "ProgressDeadlineExceeded"
    ]
    assert assess(a_replica(**NEW, observed=late, overdue=first.overdue)).warnings == ()


PHASES: list[tuple[str, dict[str, Any], tuple[str, str], str]] = [
    (
        "not applied",
        NEW | {"applied": None, "apply_started": False},
        ("Pending", "Pending"),
        "",
    ),
    ("applying", NEW | {"applied": None}, ("Applying", "Progressing"), ""),
    ("starting", NEW, ("Starting", "Progressing"), ""),
    ("a pod is lost, others serve", {}, ("Degraded", "Degraded"), URL),
    (
        "the gateway of the cluster lost its address",
        {"cluster": WITHOUT_GATEWAY},
        ("Degraded", "Degraded"),
        "",
    ),
    ("rolling out", {"generation": 2}, ("Updating", "Progressing"), URL),
    (
        "invalid from the start",
        NEW | {"failure": Failure("InvalidInput", "no")},
        ("Failed", "Failed"),
        "",
    ),
    (
        "the cluster is silent for long",
        {"cluster": UNREACHABLE, "serving": False},
        ("Unreachable", "Degraded"),
        "",
    ),
    (
        "deleted",
        {"deletion_timestamp": "2026-11-21T14:00:00Z"},
        ("Terminating", "Deleting"),
        "",
    ),
]


@pytest.mark.parametrize(
    ("story", "changes", "phases", "url"), PHASES, ids=[story for story, *_ in PHASES]
)
def test_phase_and_endpoint(
    story: str, changes: dict[str, Any], phases: tuple[str, str], url: str
) -> None:
    replica = a_replica(**changes)
    assert (detailed_phase(replica), shared_phase(replica)) == phases, story
    assert endpoint(replica) == url
