"""Replay histories with the current code."""

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer, WorkflowRunner

from api_types.resources.kinds import SERVED
from fleet_client.temporal.converter import DATA_CONVERTER
from workflows import registry


def replayer(runner: WorkflowRunner | None = None) -> Replayer:
    """Return a replayer of every workflow type.

    Debug mode disables the deadlock detector, which every pause of a slow machine would
    trigger.
    """
    workflows = list(registry.WORKFLOWS)
    return Replayer(
        workflows=workflows,
        workflow_runner=runner or registry.sandbox(),
        data_converter=DATA_CONVERTER,
        debug_mode=True,
    )


def completed_part(history: WorkflowHistory) -> WorkflowHistory | None:
    """Return a history up to its last completed workflow task and that task's commands.

    Return None if no task completed. The SDK would also deliver the later events to the
    workflow. It would then wait without end if there is nothing to replay, or if the
    workflow reacts with a local activity, which a replay does not execute.
    """
    completed = [
        event.event_id
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    ]
    if not completed:
        return None
    last = max(completed)
    kept = [
        event
        for event in history.events
        if event.event_id <= last or _completed_by(event) == last
    ]
    return WorkflowHistory(history.workflow_id, kept)


def _completed_by(event: HistoryEvent) -> int:
    """Return the id of the completed workflow task that produced this event, or 0."""
    attributes = getattr(event, event.WhichOneof("attributes") or "", None)
    return int(getattr(attributes, "workflow_task_completed_event_id", 0))


async def replay_all(client: Client, since: datetime, folder: Path) -> None:
    """Replay every workflow run started since then.

    Fail with the names of runs that do not replay, and keep their histories in the
    folder.
    """
    ours = ", ".join(
        f'"{kind}"'
        for kind in (
            *(info.kind for info in SERVED),
            "FleetScheduler",
            "StackUpgrades",
            "CloudCluster",
        )
    )

    async def histories() -> AsyncIterator[WorkflowHistory]:
        async for run in client.list_workflows(
            f'WorkflowType IN ({ours}) AND StartTime >= "{since.isoformat()}"'
        ):
            history = completed_part(
                await client.get_workflow_handle(
                    run.id, run_id=run.run_id
                ).fetch_history()
            )
            if history is not None:
                yield history

    failed = []
    async with replayer().workflow_replay_iterator(histories()) as results:
        async for result in results:
            if result.replay_failure is not None:
                kept = folder / f"{result.history.run_id}.json"
                kept.write_text(result.history.to_json())
                failed.append(
                    f"{result.history.workflow_id}, kept as {kept}: {result.replay_failure}"
                )
    assert not failed, "\n".join(failed)
