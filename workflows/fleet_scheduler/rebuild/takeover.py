"""How a scheduler without state continues the state of a lost scheduler.

A closed workflow can still be queried: a worker replays its history, so it answers with
all its decisions. A decision is in the history before any receiver has it, because
normal activities send batches of signals. So the state contains all decisions, whatever
the lost scheduler was doing. Signals that it was sending, and messages after its last
task, may be lost and are sent again.

A run that was lost before it had any state is skipped. Visibility may be late, so the
found state may belong to an earlier scheduler than the last one. So every cluster is
queried for its epoch before any placement there, and then receives the new epoch. If a
cluster knows a later scheduler than the found state, all entities are read instead
(`survey`). The same happens without a state: the lost scheduler did not know all
entities, its history cannot be replayed or is deleted, or the reason of its termination
begins with "rebuild".
"""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowHistoryEventFilterType,
    WorkflowQueryFailedError,
)
from temporalio.common import RetryPolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.workflow import ActivityConfig

from activities.heartbeat import heartbeating
from api_types import names, queues
from api_types.base import Message
from workflows.entity.calls import activity_options
from workflows.entity.calls.refusals import until_accepted
from workflows.fleet_scheduler.cache.state import SchedulerState
from workflows.fleet_scheduler.rebuild.lost_state import LostState, continuation

# A termination whose reason begins with this text requests a rebuild.
REBUILD = "rebuild"
# A large fleet is replayed in seconds. A history that cannot be replayed fails each
# query, or answers none.
QUERY_SECONDS, ATTEMPTS, PAUSE_SECONDS = 20.0, 3, 0.5
# The number of runs without state to skip.
RUNS_MAX = 20

_READ = ActivityConfig(
    task_queue=queues.WORKFLOWS,
    start_to_close_timeout=timedelta(seconds=90),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200),
        maximum_interval=timedelta(seconds=10),
    ),
)


class FindLostState(Message):
    """Find the state of the scheduler before this run."""

    run_id: str


@activity.defn
async def read_lost_state(wanted: FindLostState) -> LostState:
    """Read the state of the previous scheduler.

    The state is empty without a predecessor, or if the reason of its termination
    requests a rebuild.
    """
    client = activity.client()
    async with heartbeating():
        for run_id in (await listed_runs(client, wanted.run_id))[:RUNS_MAX]:
            lost = await _last_run(client, run_id)
            if lost is None:
                break
            found = await _handed_over(lost)
            if not found.knew_nothing:
                return found
    return LostState()


async def listed_runs(client: Client, run_id: str) -> list[str]:
    """Return the listed runs except this one, the newest first.

    A failed run is left out. It had no state, because it could not read its start.
    """
    listed = client.list_workflows(f'WorkflowId = "{names.FLEET_SCHEDULER_ID}"')
    rows = [
        row
        async for row in listed
        if row.run_id != run_id and row.status != WorkflowExecutionStatus.FAILED
    ]
    return [
        row.run_id for row in sorted(rows, key=lambda row: row.start_time, reverse=True)
    ]


async def _last_run(client: Client, run_id: str) -> WorkflowHandle[Any, Any] | None:
    """Follow a chain of runs to its last run, which visibility may not know yet.

    Return None if the state of the last run is unusable or deleted.
    """
    following: str | None = run_id
    while following:
        handle = client.get_workflow_handle(names.FLEET_SCHEDULER_ID, run_id=following)
        following = await _next_run(handle)
    return None if following is None else handle


async def _handed_over(lost: WorkflowHandle[Any, Any]) -> LostState:
    if not await _had_a_task(lost):
        # No worker can answer for this run.
        return LostState(knew_nothing=True)
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(PAUSE_SECONDS)
        try:
            return LostState.model_validate(
                await lost.query(
                    "handover", rpc_timeout=timedelta(seconds=QUERY_SECONDS)
                )
            )
        except (WorkflowQueryFailedError, RPCError) as error:
            problem = f"run {lost.run_id} does not answer: {error}"
    return LostState(problem=problem)


async def _had_a_task(run: WorkflowHandle[Any, Any]) -> bool:
    async for event in run.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            return True
    return False


async def _next_run(handle: WorkflowHandle[Any, Any]) -> str | None:
    """Return the run that continued a run; empty if it was the last.

    Return None if its state is unusable or deleted.
    """
    try:
        if (await handle.describe()).status == WorkflowExecutionStatus.RUNNING:
            return None
        events = [
            event
            async for event in handle.fetch_history_events(
                event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT
            )
        ]
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise
    last = events[-1]
    if last.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
        return last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    terminated = last.workflow_execution_terminated_event_attributes.reason
    return None if terminated.startswith(REBUILD) else ""


async def continued_state(own: SchedulerState, now: int) -> SchedulerState | None:
    """Return the state to continue with; None if all entities must be read.

    `now` is in milliseconds.
    """
    wanted, summary = (
        FindLostState(run_id=workflow.info().run_id),
        "read the state of an earlier scheduler",
    )
    options = activity_options.remote(_READ, summary)
    found = await until_accepted(
        lambda: workflow.execute_activity(read_lost_state, wanted, **options), summary
    )
    following, problem = continuation(found, own.inbox, now)
    if problem:
        workflow.logger.warning(
            "no state of an earlier scheduler is continued: all entities are read",
            extra={"problem": problem},
        )
    return following
