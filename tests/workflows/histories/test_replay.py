"""Old histories still replay. `record.py` records new ones; the runs of a session are replayed when its plane ends."""

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory

from api_types.resources.kinds import SERVED
from scheduler.placement.placer import ReplicaPlacer
from scheduler.placement.score import ClusterScorer
from tests.workflows.environment.replaying import replayer
from workflows import registry

HISTORIES = Path(__file__).parents[2] / "histories"
TYPES = sorted([*(info.kind for info in SERVED), "FleetScheduler"])


def test_every_kind_that_is_served_has_its_workflow() -> None:
    assert {entity.kind for entity in registry.ENTITIES} == {info.kind for info in SERVED}


@pytest.mark.parametrize("kind", TYPES)
def test_there_is_a_recorded_history_of_every_workflow_type(kind: str) -> None:
    assert sorted((HISTORIES / kind).glob("*.json")) != []


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*/*.json")), ids=lambda path: f"{path.parent.name} {path.stem}")
async def test_a_recorded_history_replays(path: Path) -> None:
    history = json.loads(path.read_text())
    # An entity's id is its identity, so it must be replayed under its own.
    workflow_id = history["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"]
    result = await replayer().replay_workflow(WorkflowHistory.from_json(workflow_id, history))
    assert result.replay_failure is None


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("FleetScheduler/*.json")), ids=lambda path: path.stem)
async def test_w5_a_history_replays_in_a_build_that_scores_clusters_differently(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a decision that is in the history is made again")

    monkeypatch.setattr(ClusterScorer, "ranked", never)
    monkeypatch.setattr(ReplicaPlacer, "__init__", never)
    history = json.loads(path.read_text())
    workflow_id = history["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"]
    result = await replayer().replay_workflow(WorkflowHistory.from_json(workflow_id, history))
    assert result.replay_failure is None
