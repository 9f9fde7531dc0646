"""The runs of the scheduler that Temporal still has, and their replay.

A scheduler continues as new after some thousand events, and Temporal keeps a run that has ended for the retention of its namespace. So how
far back decisions can be read is set there, and a run is never long.
"""

from datetime import datetime
from typing import NamedTuple

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.converter import WorkflowSerializationContext
from temporalio.worker import Replayer

from api_types.payloads.unreadable import UnreadablePayload
from client.errors import CommandFailed, NotFound
from client.refs.targets import SCHEDULER
from client.temporal.control_plane import ControlPlane
from workflows import registry
from workflows.fleet_scheduler.recorded_decisions import DecisionReader

# Of more runs than that Temporal is not asked: even a fleet with a run an hour takes a month to make them.
_LISTED_MAX = 1_000


class SchedulerRun(NamedTuple):
    """One run of the scheduler."""

    run_id: str
    started: datetime


async def scheduler_runs(plane: ControlPlane) -> list[SchedulerRun]:
    """List the runs of the scheduler, the newest first. Raises `Unreachable`."""
    runs: list[SchedulerRun] = []
    async for row in plane.rows(f'WorkflowId = "{SCHEDULER.workflow_id}"'):
        runs.append(SchedulerRun(row.run_id, row.start_time))
        if len(runs) == _LISTED_MAX:
            break
    return sorted(runs, key=lambda run: run.started, reverse=True)


async def read_run(plane: ControlPlane, run_id: str, reader: DecisionReader) -> None:
    """Replay a run for a reader. Raises `NotFound` when Temporal does not have it, `CommandFailed` when it cannot be replayed."""
    try:
        history = await plane.history(SCHEDULER, run_id)
    except NotFound as error:
        raise NotFound(
            f"Temporal does not have run {run_id} of the scheduler: it is of another fleet, or ended longer ago than runs are kept",
            details=["the retention of the Temporal namespace says how long that is"],
            next_step="`modelplane decisions md/NAME` lists the decisions that can be replayed",
        ) from error
    await replay(plane, history, reader)


async def replay(plane: ControlPlane, history: WorkflowHistory, reader: DecisionReader) -> None:
    """Replay a history for a reader. Raises `CommandFailed`."""
    history = until_last_result(history)
    if not history.events:
        return
    await _check_keys(plane, history)
    replayer = Replayer(
        workflows=registry.SCHEDULER_WORKFLOWS,
        workflow_runner=registry.unsandboxed(),
        namespace=plane.client.namespace,
        data_converter=plane.client.data_converter,
        interceptors=[reader],
        # It looks for no deadlocks then: a decision is made where the workflow would wait for it.
        debug_mode=True,
    )
    replayed = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    if replayed.replay_failure is not None:
        raise CommandFailed(
            f"run {history.run_id} of the scheduler cannot be replayed by this program",
            details=[str(replayed.replay_failure)],
            next_step="use the version of modelplane that the workers had when they made it",
        )


def until_last_result(history: WorkflowHistory) -> WorkflowHistory:
    """Leave out what follows the last task that has the result of a local activity, as a decision is; nothing is left if there is none.

    A run that goes on may be in the midst of a task, or before one. The SDK would begin that, and wait for ever for the results of its
    local activities.
    """
    results = [event.marker_recorded_event_attributes for event in history.events if event.HasField("marker_recorded_event_attributes")]
    last = results[-1].workflow_task_completed_event_id if results else 0
    commands = [at for at, event in enumerate(history.events, 1) if last and _task_of(event) == last]
    return WorkflowHistory(history.workflow_id, history.events[: commands[-1] if commands else 0])


def _task_of(event: HistoryEvent) -> int:
    """Give the event of the task whose command made an event; 0 for events that no task made."""
    attributes = getattr(event, event.WhichOneof("attributes") or "", None)
    return getattr(attributes, "workflow_task_completed_event_id", 0)


async def _check_keys(plane: ControlPlane, history: WorkflowHistory) -> None:
    """Check that what the scheduler recorded itself can be decrypted; what others sent it could not read either. Raises `CommandFailed`.

    The SDK asks again and again for a key that is missing, as a worker should.
    """
    results = [event.marker_recorded_event_attributes.details.get("result") for event in history.events]
    payloads = [payload for result in results if result is not None for payload in result.payloads]
    context = WorkflowSerializationContext(namespace=plane.client.namespace, workflow_id=SCHEDULER.workflow_id)
    converter = plane.client.data_converter.with_context(context)
    # A run may have been made with several keys, and each says which one it was.
    distinct = {tuple(sorted((key, payload.metadata[key]) for key in payload.metadata)): payload for payload in payloads}
    try:
        for payload in distinct.values():
            await converter.decode([payload])
    except (UnreadablePayload, KeyError) as error:
        # Without any key the encoding is unknown to the converter, which raises a KeyError.
        raise CommandFailed(
            f"run {history.run_id} of the scheduler is encrypted with a key that this program does not have",
            details=[str(error.args[0])],
            next_step="add the keys of the workers to `encryption.keys` in the settings",
        ) from error
