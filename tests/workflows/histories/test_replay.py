"""Old histories still replay. `record.py` records new ones; the runs of a session are replayed when its plane ends."""

import base64
import copy
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory

from api_types.resources.kinds import SERVED
from scheduler.placement.cycle import SchedulingCycle
from scheduler.placement.score import ClusterScorer
from tests.workflows.environment.replaying import replayer
from tests.workflows.histories.recorded import recorded, title
from workflows import registry

# Of one history, in which the clock goes back once for each.
STEPS_BACK_MAX = 6
TYPES = sorted([*(info.kind for info in SERVED), "FleetScheduler", "EndpointDirectory", "StackUpgrades", "CloudCluster"])


def test_every_kind_that_is_served_has_its_workflow() -> None:
    assert {entity.kind for entity in registry.ENTITIES} == {info.kind for info in SERVED}


@pytest.mark.parametrize("kind", TYPES)
def test_there_is_a_recorded_history_of_every_workflow_type(kind: str) -> None:
    assert recorded(kind) != []


@pytest.mark.parametrize("kind", [info.kind for info in SERVED])
def test_there_is_a_recorded_history_of_every_kind_to_its_end(kind: str) -> None:
    lives = [json.loads(path.read_text())["events"] for path in recorded(kind)]
    assert any("workflowExecutionCompletedEventAttributes" in events[-1] for events in lives)


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False], ids=["", "attributes without names"])
@pytest.mark.parametrize("path", recorded(), ids=title)
async def test_a_recorded_history_replays(path: Path, named: bool) -> None:
    """Search attributes that were registered a moment ago have no names on every server: a workflow may see none of its own."""
    history = json.loads(path.read_text())
    if not named:
        del history["events"][0]["workflowExecutionStartedEventAttributes"]["searchAttributes"]
    # An entity's id is its identity, so it must be replayed under its own.
    workflow_id = history["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"]
    result = await replayer().replay_workflow(WorkflowHistory.from_json(workflow_id, history))
    assert result.replay_failure is None


@pytest.mark.slow
@pytest.mark.parametrize("path", recorded(), ids=title)
async def test_a_workflow_goes_on_when_the_clock_of_the_server_was_set_back(path: Path) -> None:
    """As a worker runs it, behind the guard of `runner.py`."""
    history = json.loads(path.read_text())
    workflow_id = history["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"]
    whole = WorkflowHistory.from_json(workflow_id, history).events
    tasks = [at for at, event in enumerate(whole) if event.HasField("workflow_task_completed_event_attributes")]
    assert len(tasks) > 2
    pairs = list(pairwise(tasks))
    for earlier, task in pairs[:: -(-len(pairs) // STEPS_BACK_MAX)]:
        # What arrived after the task is left out: the guard would refuse it. The event before its end is its start.
        events = copy.deepcopy(whole[: task + 1])
        events[-2].event_time.FromNanoseconds(events[earlier - 1].event_time.ToNanoseconds() - 1)
        replayed = await replayer(registry.runner()).replay_workflow(WorkflowHistory(workflow_id, events), raise_on_replay_failure=False)
        assert replayed.replay_failure is None, f"event {task}"


def local_activities(history: dict[str, Any]) -> set[str]:
    """The names of the local activities in a history, as the SDK keeps them in markers."""
    markers = [event.get("markerRecordedEventAttributes", {}).get("details", {}) for event in history["events"]]
    payloads = [payload["data"] for marker in markers for payload in marker.get("data", {}).get("payloads", ())]
    return {json.loads(base64.b64decode(payload))["activity_type"] for payload in payloads}


@pytest.mark.slow
@pytest.mark.parametrize("path", recorded("FleetScheduler"), ids=title)
async def test_w5_a_history_replays_in_a_build_that_scores_clusters_differently(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a decision that is in the history is made again")

    # Whatever the rule is: no deployment is decided about, and no cluster scored.
    monkeypatch.setattr(SchedulingCycle, "run", never)
    monkeypatch.setattr(ClusterScorer, "ranked", never)
    history = json.loads(path.read_text())
    assert "decide" in local_activities(history)
    workflow_id = history["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"]
    result = await replayer().replay_workflow(WorkflowHistory.from_json(workflow_id, history))
    assert result.replay_failure is None
