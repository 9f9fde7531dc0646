"""Replay histories with the code as it is now."""

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer, WorkflowRunner

from api_types.resources.kinds import SERVED
from client.temporal.converter import DATA_CONVERTER
from workflows import registry


def replayer(runner: WorkflowRunner | None = None) -> Replayer:
    """Make a replayer of every workflow type. Debug mode looks for no deadlocks: on a slow machine every pause would be one."""
    workflows = list(registry.WORKFLOWS)
    return Replayer(workflows=workflows, workflow_runner=runner or registry.sandbox(), data_converter=DATA_CONVERTER, debug_mode=True)


def completed_part(history: WorkflowHistory) -> WorkflowHistory | None:
    """Give a history up to its last workflow task that was completed, with the commands of that; None if there is none.

    The SDK would give the workflow what came after that, and wait for ever where there is nothing to replay, or where the workflow reacts
    with a local activity, which a replay does not execute.
    """
    completed = [event.event_id for event in history.events if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED]
    if not completed:
        return None
    last = max(completed)
    kept = [event for event in history.events if event.event_id <= last or _completed_by(event) == last]
    return WorkflowHistory(history.workflow_id, kept)


def _completed_by(event: HistoryEvent) -> int:
    """Give the completed workflow task that an event is a command of; 0 if it is none."""
    attributes = getattr(event, event.WhichOneof("attributes") or "", None)
    return int(getattr(attributes, "workflow_task_completed_event_id", 0))


async def replay_all(client: Client, since: datetime, folder: Path) -> None:
    """Replay every run of our workflows that was started since then, and name all that fail; their histories are kept in the folder."""
    ours = ", ".join(f'"{kind}"' for kind in (*(info.kind for info in SERVED), "FleetScheduler", "StackUpgrades", "CloudCluster"))

    async def histories() -> AsyncIterator[WorkflowHistory]:
        async for run in client.list_workflows(f'WorkflowType IN ({ours}) AND StartTime >= "{since.isoformat()}"'):
            history = completed_part(await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history())
            if history is not None:
                yield history

    failed = []
    async with replayer().workflow_replay_iterator(histories()) as results:
        async for result in results:
            if result.replay_failure is not None:
                kept = folder / f"{result.history.run_id}.json"
                kept.write_text(result.history.to_json())
                failed.append(f"{result.history.workflow_id}, kept as {kept}: {result.replay_failure}")
    assert not failed, "\n".join(failed)
