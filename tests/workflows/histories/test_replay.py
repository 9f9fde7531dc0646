"""Old histories still replay.

`record.py` records new ones. Each plane of a session replays its runs when it ends.
"""

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

# Per history. The clock is set back once for each.
STEPS_BACK_MAX = 6
TYPES = sorted(
    [
        *(info.kind for info in SERVED),
        "FleetScheduler",
        "EndpointDirectory",
        "StackUpgrades",
        "CloudCluster",
    ]
)


def test_every_served_kind_has_its_workflow() -> None:
    assert {entity.kind for entity in registry.ENTITIES} == {
        info.kind for info in SERVED
    }


@pytest.mark.parametrize("kind", TYPES)
def test_there_is_a_recorded_history_of_every_workflow_type(kind: str) -> None:
    assert recorded(kind) != []


@pytest.mark.parametrize("kind", [info.kind for info in SERVED])
def test_there_is_a_recorded_history_of_every_kind_to_its_end(kind: str) -> None:
    lives = [json.loads(path.read_text())["events"] for path in recorded(kind)]
    assert any(
        "workflowExecutionCompletedEventAttributes" in events[-1] for events in lives
    )


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False], ids=["", "attributes without names"])
@pytest.mark.parametrize("path", recorded(), ids=title)
async def test_a_recorded_history_replays(path: Path, named: bool) -> None:
    """Some servers have no names for recently registered search attributes, so a
    workflow may see none of its own.
    """
    history = json.loads(path.read_text())
    if not named:
        del history["events"][0]["workflowExecutionStartedEventAttributes"][
            "searchAttributes"
        ]
    # An entity's id is its identity, so its history must be replayed under that id.
    workflow_id = history["events"][0]["workflowExecutionStartedEventAttributes"][
        "workflowId"
    ]
    result = await replayer().replay_workflow(
        WorkflowHistory.from_json(workflow_id, history)
    )
    assert result.replay_failure is None


@pytest.mark.slow
@pytest.mark.parametrize("path", recorded(), ids=title)
async def test_a_workflow_continues_when_the_servers_clock_was_set_back(
    path: Path,
) -> None:
    """The replay runs as on a worker, behind the guard of `runner.py`."""
    history = json.loads(path.read_text())
    workflow_id = history["events"][0]["workflowExecutionStartedEventAttributes"][
        "workflowId"
    ]
    whole = WorkflowHistory.from_json(workflow_id, history).events
    tasks = [
        at
        for at, event in enumerate(whole)
        if event.HasField("workflow_task_completed_event_attributes")
    ]
    assert len(tasks) > 2
    pairs = list(pairwise(tasks))
    for earlier, task in pairs[:: -(-len(pairs) // STEPS_BACK_MAX)]:
        # Later events are left out, because the guard would reject them. The event
        # before the task's end is its start.
        events = copy.deepcopy(whole[: task + 1])
        events[-2].event_time.FromNanoseconds(
            events[earlier - 1].event_time.ToNanoseconds() - 1
        )
        replayed = await replayer(registry.runner()).replay_workflow(
            WorkflowHistory(workflow_id, events), raise_on_replay_failure=False
        )
        assert replayed.replay_failure is None, f"event {task}"


def local_activities(history: dict[str, Any]) -> set[str]:
    """Return the names of the local activities in a history, which the SDK stores in markers."""
    markers = [
        event.get("markerRecordedEventAttributes", {}).get("details", {})
        for event in history["events"]
    ]
    payloads = [
        payload["data"]
        for marker in markers
        for payload in marker.get("data", {}).get("payloads", ())
    ]
    return {
        json.loads(base64.b64decode(payload))["activity_type"] for payload in payloads
    }


@pytest.mark.slow
@pytest.mark.parametrize("path", recorded("FleetScheduler"), ids=title)
async def test_a_history_replays_in_a_build_that_scores_clusters_differently(
    monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a decision that is in the history is made again")

    # No deployment is decided and no cluster scored, whatever the rule is.
    monkeypatch.setattr(SchedulingCycle, "run", never)
    monkeypatch.setattr(ClusterScorer, "ranked", never)
    history = json.loads(path.read_text())
    assert "decide" in local_activities(history)
    workflow_id = history["events"][0]["workflowExecutionStartedEventAttributes"][
        "workflowId"
    ]
    result = await replayer().replay_workflow(
        WorkflowHistory.from_json(workflow_id, history)
    )
    assert result.replay_failure is None
