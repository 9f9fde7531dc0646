"""Old histories still replay, and so does every run that these tests made. `record_histories.py` records new ones."""

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.workflows.harness import ControlPlane
from workflows import registry

HISTORIES = Path(__file__).parents[1] / "histories"
TYPES = sorted([*registry.KINDS.values(), "FleetScheduler"])


def replayer() -> Replayer:
    workflows = [*registry.ENTITIES, *registry.SCHEDULER_WORKFLOWS]
    return Replayer(workflows=workflows, workflow_runner=registry.sandbox(), data_converter=pydantic_data_converter)


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


@pytest.mark.testbed
@pytest.mark.parametrize("kind", TYPES)
async def test_every_run_of_this_session_replays(plane: ControlPlane, kind: str) -> None:
    replayed = 0
    async for run in plane.client.list_workflows(f'WorkflowType = "{kind}"'):
        handle = plane.client.get_workflow_handle(run.id, run_id=run.run_id)
        result = await replayer().replay_workflow(await handle.fetch_history())
        assert result.replay_failure is None, f"{run.id} {run.run_id}"
        replayed += 1
    assert replayed or kind.startswith("Model")
