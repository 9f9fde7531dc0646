"""The runs of the scheduler that Temporal still has, and their replay.

A scheduler continues as new after some thousand events, so a run is never long.
Temporal keeps a closed run for the retention of its namespace, which limits how far
back decisions can be read.
"""

from datetime import datetime
from typing import NamedTuple

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.converter import WorkflowSerializationContext
from temporalio.worker import Replayer

from api_types.payloads.unreadable import UnreadablePayload
from fleet_client.errors import CommandFailed, NotFound
from fleet_client.refs.targets import SCHEDULER
from fleet_client.temporal.control_plane import ControlPlane
from workflows import registry
from workflows.fleet_scheduler.recorded_decisions import DecisionReader

# Even a fleet with one run per hour needs a month for this many runs.
_LISTED_MAX = 1_000


class SchedulerRun(NamedTuple):
    """One run of the scheduler."""

    run_id: str
    started: datetime


async def scheduler_runs(plane: ControlPlane) -> list[SchedulerRun]:
    """Return the runs of the scheduler, the newest first. Raise `Unreachable`."""
    runs: list[SchedulerRun] = []
    async for row in plane.rows(f'WorkflowId = "{SCHEDULER.workflow_id}"'):
        runs.append(SchedulerRun(row.run_id, row.start_time))
        if len(runs) == _LISTED_MAX:
            break
    return sorted(runs, key=lambda run: run.started, reverse=True)


async def read_run(plane: ControlPlane, run_id: str, reader: DecisionReader) -> None:
    """Replay a run for a reader.

    Raise `NotFound` if Temporal no longer has the run, `CommandFailed` if it cannot be
    replayed.
    """
    try:
        history = await plane.history(SCHEDULER, run_id)
    except NotFound as error:
        raise NotFound(
            f"Temporal does not have run {run_id} of the scheduler: it belongs "
            "to another fleet, or its retention has ended",
            details=["the Temporal namespace sets the retention"],
            next_step="`modelplane decisions md/NAME` lists the decisions that can be replayed",
        ) from error
    await replay(plane, history, reader)


async def replay(
    plane: ControlPlane, history: WorkflowHistory, reader: DecisionReader
) -> None:
    """Replay a history for a reader. Raise `CommandFailed`."""
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
        # This disables deadlock detection: a decision runs where the workflow would
        # wait for it.
        debug_mode=True,
    )
    replayed = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    if replayed.replay_failure is not None:
        raise CommandFailed(
            f"run {history.run_id} of the scheduler cannot be replayed by this program",
            details=[str(replayed.replay_failure)],
            next_step="use the modelplane version of the workers that made it",
        )


def until_last_result(history: WorkflowHistory) -> WorkflowHistory:
    """Cut a history after the last task that has the result of a local activity.

    Decisions are such results. Nothing remains if there is none. Without the cut, the
    history of a running workflow may end in the middle of a task. The SDK would start
    that task and wait indefinitely for its local activities.
    """
    results = [
        event.marker_recorded_event_attributes
        for event in history.events
        if event.HasField("marker_recorded_event_attributes")
    ]
    last = results[-1].workflow_task_completed_event_id if results else 0
    commands = [
        at
        for at, event in enumerate(history.events, 1)
        if last and _task_of(event) == last
    ]
    return WorkflowHistory(
        history.workflow_id, history.events[: commands[-1] if commands else 0]
    )


def _task_of(event: HistoryEvent) -> int:
    """Return the id of the event's workflow task, or 0 for an event without one."""
    attributes = getattr(event, event.WhichOneof("attributes") or "", None)
    return getattr(attributes, "workflow_task_completed_event_id", 0)


async def _check_keys(plane: ControlPlane, history: WorkflowHistory) -> None:
    """Check that the scheduler's own records can be decrypted.

    Raise `CommandFailed`. Messages of others are not checked, because the scheduler
    could not read them either. The SDK retries forever if a key is missing, as a worker
    should.
    """
    payloads = []
    for event in history.events:
        result = event.marker_recorded_event_attributes.details.get("result")
        if result is not None:
            payloads += result.payloads
    context = WorkflowSerializationContext(
        namespace=plane.client.namespace, workflow_id=SCHEDULER.workflow_id
    )
    converter = plane.client.data_converter.with_context(context)
    # Several keys may have encrypted a run. The metadata of a payload names its key.
    distinct = {
        tuple(sorted((key, payload.metadata[key]) for key in payload.metadata)): payload
        for payload in payloads
    }
    try:
        for payload in distinct.values():
            await converter.decode([payload])
    except (UnreadablePayload, KeyError) as error:
        # Without any key the converter does not know the encoding, and raises KeyError.
        raise CommandFailed(
            f"run {history.run_id} of the scheduler is encrypted with a key that "
            "this program does not have",
            details=[str(error.args[0])],
            next_step="add the keys of the workers to `encryption.keys` in the settings",
        ) from error
