"""The condition `SchedulingDisabled` and its events.

The user, time and reason of a drain, cordon or uncordon. These tests need no server.
"""

from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from api_types.messages.entities import SetSpec
from api_types.taints import CORDON, MAINTENANCE
from tests.api_types.builders import a_cluster as a_cluster_manifest
from tests.workflows.environment.serverless import Serverless
from workflows.inference_cluster.state import ClusterState
from workflows.inference_cluster.workflow import InferenceClusterWorkflow

Taints = list[dict[str, str]]
NONE = ("", "", "")
FIRST, SECOND = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


@pytest.fixture
def temporal(monkeypatch: pytest.MonkeyPatch) -> Serverless:
    return Serverless(monkeypatch, "inferencecluster/oslo")


def manifest(taints: Taints) -> dict[str, Any]:
    document = a_cluster_manifest()
    return {
        **document,
        "metadata": {**document["metadata"], "name": "oslo"},
        "spec": {**document["spec"], "taints": taints},
    }


def shown(cluster: InferenceClusterWorkflow) -> tuple[str, str, str]:
    found = next(
        (one for one in cluster.state.conditions if one.type == "SchedulingDisabled"),
        None,
    )
    return (found.status, found.reason, found.message) if found else NONE


class Case(NamedTuple):
    """The taints of two successive manifests, and the condition after the second.

    `events` has the reasons of events of this kind.
    """

    story: str
    first: Taints
    second: Taints
    condition: tuple[str, str, str]
    events: list[str]


OTHER = {"key": "team", "effect": "NoSchedule"}
DRAINED_SECOND = ("True", "Drained", f"drained by bob at {SECOND}: kernel update")
CASES = [
    Case("a drain is shown", [], [MAINTENANCE], DRAINED_SECOND, ["Drained"]),
    Case(
        "a cordon is shown",
        [],
        [CORDON],
        ("True", "Cordoned", f"cordoned by bob at {SECOND}: kernel update"),
        ["Cordoned"],
    ),
    Case(
        "a drain of a cordoned cluster names the drain",
        [CORDON],
        [CORDON, MAINTENANCE],
        DRAINED_SECOND,
        ["Cordoned", "Drained"],
    ),
    Case(
        "an uncordon removes the condition",
        [MAINTENANCE],
        [],
        NONE,
        ["Drained", "Uncordoned"],
    ),
    Case(
        "an uncordon of a cordoned cluster too",
        [CORDON, OTHER],
        [OTHER],
        NONE,
        ["Cordoned", "Uncordoned"],
    ),
    Case("another taint is no drain", [], [OTHER], NONE, []),
    Case(
        "a later apply does not change the user of a drain",
        [MAINTENANCE],
        [MAINTENANCE, OTHER],
        ("True", "Drained", f"drained by ann at {FIRST}"),
        ["Drained"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_a_condition_and_an_event_name_the_user_time_and_reason(
    case: Case, temporal: Serverless
) -> None:
    cluster = InferenceClusterWorkflow(None)
    cluster.set_spec(SetSpec(by="ann", manifest=manifest(case.first)).wire())
    temporal.now += timedelta(minutes=1)
    cluster.set_spec(
        SetSpec(by="bob", manifest=manifest(case.second), reason="kernel update").wire()
    )
    assert shown(cluster) == case.condition
    assert [
        event.reason
        for event in cluster.state.events
        if event.reason in {"Drained", "Cordoned", "Uncordoned"}
    ] == case.events
    assert cluster.waiting() == []


def test_the_event_names_the_user_and_the_reason(temporal: Serverless) -> None:
    del temporal
    cluster = InferenceClusterWorkflow(None)
    cluster.set_spec(
        SetSpec(
            by="ann", manifest=manifest([MAINTENANCE]), reason="kernel update"
        ).wire()
    )
    cluster.set_spec(SetSpec(manifest=manifest([])).wire())
    assert [
        event.message for event in cluster.state.events if event.reason != "SpecChanged"
    ] == [
        "drained by ann: kernel update",
        "uncordoned by unknown",
    ]


def test_the_condition_survives_continue_as_new(temporal: Serverless) -> None:
    del temporal
    cluster = InferenceClusterWorkflow(None)
    cluster.set_spec(SetSpec(by="ann", manifest=manifest([MAINTENANCE])).wire())
    carried = ClusterState.model_validate_json(
        cluster.state.model_dump_json(by_alias=True)
    )
    assert shown(InferenceClusterWorkflow(carried)) == (
        "True",
        "Drained",
        f"drained by ann at {FIRST}",
    )


def test_a_deletion_with_eviction_is_a_drain_by_the_deleting_user(
    temporal: Serverless,
) -> None:
    del temporal
    cluster = InferenceClusterWorkflow(None)
    cluster.set_spec(SetSpec(by="ann", manifest=manifest([])).wire())
    cluster.delete({"by": "bob", "evict": True})
    assert shown(cluster) == (
        "True",
        "Drained",
        f"drained by bob at {FIRST}: deletion with --evict",
    )
