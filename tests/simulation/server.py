"""Temporal in virtual time: executions and their runs, messages, timers, and visibility.

It keeps the promises of the real server that the product relies on: an accepted signal is never
lost; a task sees all that arrived before it; commands that end a run are refused while a
message is unread; visibility is late; a closed run is forgotten after its retention. It refuses
child workflows, schedules and cron, which the product does not use.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from api_types import queues
from fleet_client.temporal.converter import DATA_CONVERTER
from tests.simulation import resets
from tests.simulation.attempts import Attempts
from tests.simulation.poisons import Poison, unreadable_payload
from tests.simulation.runs import (
    COMPLETED,
    CONTINUED,
    FAILED,
    TERMINATED,
    Execution,
    Run,
    attributes_of,
    value_of,
)
from tests.simulation.tasks import Tasks, kind_of

if TYPE_CHECKING:
    from tests.simulation.world import World

_CONVERTER = DATA_CONVERTER.payload_converter
PAYLOAD_BYTES_MAX = 2 * 1024 * 1024
HISTORY_EVENTS, HISTORY_BYTES = 4096, 4 * 1024 * 1024
_EVENTS_OF_SEED = (40, 200, 1000, HISTORY_EVENTS)
_QUERY_LOOK = 0.05
_VISIBLE_AFTER = (0.02, 1.0)
_VISIBLE_LATE = (5.0, 120.0)
_FULL = (1.0, 1800.0)
_RETENTIONS = (float("inf"), float("inf"), 24 * 3600.0, 3600.0, 900.0)


@dataclass
class Row:
    """A run in visibility."""

    workflow_id: str
    run_id: str
    kind: str
    status: str
    start_time: datetime
    close_time: datetime | None
    fields: dict[str, Payload] = field(default_factory=dict)
    version: int = 0
    closed: float | None = None

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """The search attributes by name."""
        return attributes_of(self.fields)


class Server:
    """The simulated Temporal."""

    def __init__(self, world: "World", draw: random.Random) -> None:
        self.world = world
        self.draw = draw
        self.executions: dict[str, Execution] = {}
        self.rows: dict[str, Row] = {}
        self.down = False
        self.poisons: dict[str, Poison] = {}
        """The workflow ids that are broken for good."""
        self.events_max = draw.choice(_EVENTS_OF_SEED)
        self.bytes_max = HISTORY_BYTES
        self.retention = world.source("retention").choice(_RETENTIONS)
        """How many seconds a closed run is kept."""
        self.tasks = Tasks(self)
        self.attempts = Attempts(self)
        self._up = asyncio.Event()
        self._up.set()
        self._versions = 0

    # Outages

    def go_down(self) -> None:
        """Answer nothing from now on."""
        self.down = True
        self._up.clear()

    def come_up(self) -> None:
        """Answer again."""
        self.down = False
        self._up.set()

    async def reachable(self) -> None:
        """Wait until it answers, as the SDK's worker does with its reports."""
        await self._up.wait()

    def is_poisoned(self, run: Run, poison: Poison) -> bool:
        """Return whether a workflow has this defect."""
        return self.poisons.get(run.workflow_id) is poison

    # Executions

    def find(self, workflow_id: str, run_id: str | None = None) -> Run:
        """Find a run, the newest without a run id. Raises RPCError."""
        execution = self.executions.get(workflow_id)
        if execution is not None:
            for run in reversed(execution.runs):
                if run_id in (None, "", run.run_id) and self._is_retained(run.closed):
                    return run
        raise RPCError(f"workflow not found for ID: {workflow_id}", RPCStatusCode.NOT_FOUND, b"")

    def _is_retained(self, closed: float | None) -> bool:
        """Return whether the server still has a run that was closed at that time."""
        return closed is None or self.world.clock.seconds() - closed < self.retention

    def open_run(self, workflow_id: str, run_id: str | None = None) -> Run:
        """Find a run that is open. Raises RPCError."""
        run = self.find(workflow_id, run_id)
        if not run.is_open:
            raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")
        return run

    def start(
        self,
        kind: str,
        arguments: Sequence[Any],
        workflow_id: str,
        queue: str,
        *,
        conflict: WorkflowIDConflictPolicy,
        reuse: WorkflowIDReusePolicy,
        memo: Mapping[str, Any],
        attributes: Mapping[str, Payload],
        signal: tuple[str, Sequence[Any]] | None,
        request_id: str = "",
    ) -> Run:
        """Start an execution, or signal a running one. Raises WorkflowAlreadyStartedError.

        A repeated request has no effect while its run is the last one.
        """
        execution = self.executions.get(workflow_id)
        run = execution.run if execution else None
        if run is not None and request_id and run.request_id == request_id:
            return run
        if run is not None and run.is_open:
            if conflict is not WorkflowIDConflictPolicy.USE_EXISTING:
                raise WorkflowAlreadyStartedError(workflow_id, kind, run_id=run.run_id)
        else:
            if run is not None and self._is_retained(run.closed):
                failed_only = reuse is WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY
                if reuse is WorkflowIDReusePolicy.REJECT_DUPLICATE or (
                    failed_only and run.status == COMPLETED
                ):
                    raise WorkflowAlreadyStartedError(workflow_id, kind, run_id=run.run_id)
            fields = {key: _CONVERTER.to_payloads([value])[0] for key, value in memo.items()}
            run = self._new_run(
                kind,
                workflow_id,
                queue,
                self.payloads(arguments),
                memo=fields,
                attributes=dict(attributes),
            )
            run.request_id = request_id
            self.world.note("start", workflow_id)
        if signal is not None:
            self.signal(run, signal[0], signal[1])
        return run

    def start_continued(self, kind: str, workflow_id: str, state: Any) -> None:
        """Start a run that continues with a state, after a run that this simulation never ran."""
        before = Run(
            workflow_id=workflow_id,
            run_id=f"{self.draw.getrandbits(64):016x}",
            kind=kind,
            queue=queues.WORKFLOWS,
            first_run_id="",
            continued="",
            seed=0,
            input=[],
            started=self.world.clock.seconds(),
            start_time=self.world.clock.now(),
            started_memo={},
            started_attributes={},
            status=CONTINUED,
        )
        before.first_run_id = before.run_id
        self.executions.setdefault(workflow_id, Execution(workflow_id)).runs.append(before)
        arguments = self.payloads([state])
        self._new_run(
            kind, workflow_id, before.queue, arguments, memo={}, attributes={}, before=before
        )

    def _new_run(
        self,
        kind: str,
        workflow_id: str,
        queue: str,
        arguments: Sequence[Payload],
        *,
        memo: dict[str, Payload],
        attributes: dict[str, Payload],
        before: Run | None = None,
    ) -> Run:
        run_id = f"{self.draw.getrandbits(64):016x}"
        run = Run(
            workflow_id=workflow_id,
            run_id=run_id,
            kind=kind,
            queue=queue,
            first_run_id=before.first_run_id if before else run_id,
            continued=before.run_id if before else "",
            seed=self.draw.getrandbits(63),
            input=list(arguments),
            started=self.world.clock.seconds(),
            start_time=self.world.clock.now(),
            started_memo=memo,
            started_attributes=attributes,
        )
        self.executions.setdefault(workflow_id, Execution(workflow_id)).runs.append(run)
        job = WorkflowActivationJob()
        start = job.initialize_workflow
        start.workflow_type, start.workflow_id, start.attempt = kind, workflow_id, 1
        start.arguments.extend(arguments)
        start.randomness_seed, start.first_execution_run_id = run.seed, run.first_run_id
        start.continued_from_execution_run_id = run.continued
        start.start_time.FromDatetime(run.start_time)
        for key, payload in memo.items():
            start.memo.fields[key].CopyFrom(payload)
        for key, payload in attributes.items():
            start.search_attributes.indexed_fields[key].CopyFrom(payload)
        self.publish(run)
        self.deliver(run, job, events=1, size=job.ByteSize())
        return run

    def deliver(self, run: Run, job: WorkflowActivationJob, *, events: int, size: int = 0) -> None:
        """Add events to a history that its workflow has to read."""
        if not run.is_open:
            return
        run.add_event(size, events)
        run.inbox.append(job)
        self.tasks.wake(run)

    def signal(self, run: Run, name: str, arguments: Sequence[Any]) -> None:
        """Accept a signal, or refuse it for a while. Raises RPCError."""
        faults, now = self.world.faults, self.world.clock.seconds()
        if faults.strikes("receiver.full", run.workflow_id):
            run.full_until = min(now + faults.between(*_FULL), faults.last)
        if now < run.full_until or self.is_poisoned(run, Poison.FULL):
            text = "exceeded workflow execution limit for signal events"
            raise RPCError(text, RPCStatusCode.INVALID_ARGUMENT, b"")
        job = WorkflowActivationJob()
        job.signal_workflow.signal_name = name
        job.signal_workflow.input.extend(self.payloads(arguments))
        if self.is_poisoned(run, Poison.UNREADABLE):
            del job.signal_workflow.input[:]
            job.signal_workflow.input.append(unreadable_payload(f"{self.draw.getrandbits(64):x}"))
        run.payloads.extend(payload.data for payload in job.signal_workflow.input)
        self.deliver(run, job, events=1, size=job.ByteSize())
        self.world.note("signal", run.workflow_id, name)

    def update(
        self, run: Run, name: str, arguments: Sequence[Any], update_id: str
    ) -> "asyncio.Future[Any]":
        """Send an update; its future has the result. A repeat of an id gives the same one."""
        if update_id in run.updates:
            return run.updates[update_id]
        future = run.updates[update_id] = asyncio.get_running_loop().create_future()
        if self.is_poisoned(run, Poison.SILENT):
            return future
        job = WorkflowActivationJob()
        update = job.do_update
        update.id = update.protocol_instance_id = update_id
        update.name, update.run_validator = name, True
        update.input.extend(self.payloads(arguments))
        self.deliver(run, job, events=1, size=job.ByteSize())
        self.world.note("update", run.workflow_id, name)
        return future

    def request_cancel(self, run: Run) -> None:
        """Accept a request to cancel a run."""
        job = WorkflowActivationJob()
        job.cancel_workflow.SetInParent()
        self.deliver(run, job, events=1)

    def terminate(self, run: Run, reason: str) -> None:
        """End a run at once."""
        self.end(run, reason)
        self.world.note("terminated", run.workflow_id, reason)

    def reset(self, run: Run, kept: int) -> Run:
        """Start another run with the first `kept` tasks of a run, which ends. Raises RPCError."""
        if kept >= len(run.recorded):
            raise RPCError(f"no task {kept + 1}", RPCStatusCode.INVALID_ARGUMENT, b"")
        following = resets.reset(self, run, kept)
        self.world.note("reset", run.workflow_id, f"{kept} of {len(run.recorded)} tasks are kept")
        return following

    def end(self, run: Run, reason: str) -> None:
        """End a run at once. Observers of the simulation are not notified."""
        run.reason = reason
        run.add_event(len(reason))
        self.close(run, TERMINATED)
        if run.instance is not None and run.worker is not None and not run.task_open:
            run.worker.evict(run)

    def close(self, run: Run, status: str) -> None:
        """End a run."""
        self.tasks.settle(run)
        run.status, run.close_time = status, self.world.clock.now()
        run.closed = self.world.clock.seconds()
        run.add_event()
        for timer in run.timers.values():
            timer.cancel()
        run.timers.clear()
        for pending in run.activities.values():
            pending.forget()
        run.activities.clear()
        for future in run.updates.values():
            if not future.done():
                error = RPCError(
                    "workflow execution already completed", RPCStatusCode.NOT_FOUND, b""
                )
                future.set_exception(error)
                future.exception()
        self.publish(run)

    # Commands

    def apply(self, run: Run, command: WorkflowCommand) -> None:
        """Carry out a command of a workflow."""
        kind, size = kind_of(command), command.ByteSize()
        if size > PAYLOAD_BYTES_MAX:
            raise AssertionError(
                f"{run.workflow_id} gave a command {kind} of {size} bytes, which the server refuses"
            )
        do: Callable[[Run, WorkflowCommand], None] | None = getattr(self, f"_{kind}", None)
        if do is None:
            raise AssertionError(
                f"the simulation has no command {kind}, which {run.workflow_id} gave"
            )
        run.payloads.append(command.SerializeToString())
        run.add_event(size)
        do(run, command)

    def _start_timer(self, run: Run, command: WorkflowCommand) -> None:
        seconds = command.start_timer.start_to_fire_timeout.ToTimedelta().total_seconds()
        self.start_timer(run, command.start_timer.seq, seconds)

    def start_timer(self, run: Run, seq: int, seconds: float) -> None:
        """Let a timer fire."""
        loop = asyncio.get_running_loop()
        run.timers[seq] = loop.call_later(seconds, self._fire, run, seq)

    def _fire(self, run: Run, seq: int) -> None:
        if self.down:
            loop = asyncio.get_running_loop()
            run.timers[seq] = loop.call_later(1.0, self._fire, run, seq)
            return
        run.timers.pop(seq)
        job = WorkflowActivationJob()
        job.fire_timer.seq = seq
        self.deliver(run, job, events=1)

    def _cancel_timer(self, run: Run, command: WorkflowCommand) -> None:
        seq = command.cancel_timer.seq
        timer = run.timers.pop(seq, None)
        if timer is not None:
            timer.cancel()
        # Remove a timer that has fired since from the unread jobs.
        run.inbox = [
            job
            for job in run.inbox
            if not (job.HasField("fire_timer") and job.fire_timer.seq == seq)
        ]

    def _schedule_activity(self, run: Run, command: WorkflowCommand) -> None:
        self.attempts.start(run, command)

    def _request_cancel_activity(self, run: Run, command: WorkflowCommand) -> None:
        seq = command.request_cancel_activity.seq
        waits = False
        pending = run.activities.get(seq)
        if pending is not None:
            waits = pending.command.cancellation_type == 1
            pending.request_cancel()
            if not waits:
                run.activities.pop(seq).forget()
        if not waits:
            # The workflow considers it cancelled, and reads no other result.
            run.inbox = [job for job in run.inbox if not _resolves(job, seq)]

    def _upsert_workflow_search_attributes(self, run: Run, command: WorkflowCommand) -> None:
        upserted = command.upsert_workflow_search_attributes.search_attributes
        for key, payload in upserted.indexed_fields.items():
            if payload.data in (b"null", b"[]", b""):
                run.attribute_fields.pop(key, None)
            else:
                run.attribute_fields[key] = payload
        self.publish(run)

    def _modify_workflow_properties(self, run: Run, command: WorkflowCommand) -> None:
        for key, payload in command.modify_workflow_properties.upserted_memo.fields.items():
            if payload.metadata.get("encoding") == b"binary/null":
                run.memo_fields.pop(key, None)
            else:
                run.memo_fields[key] = payload
        self.publish(run)

    def _update_response(self, run: Run, command: WorkflowCommand) -> None:
        response = command.update_response
        future = run.updates.get(response.protocol_instance_id)
        if future is None or future.done() or response.HasField("accepted"):
            return
        if response.HasField("completed"):
            future.set_result(value_of(response.completed))
            return
        cause = DATA_CONVERTER.failure_converter.from_failure(response.rejected, _CONVERTER)
        future.set_exception(WorkflowUpdateFailedError(cause))
        future.exception()

    def _complete_workflow_execution(self, run: Run, command: WorkflowCommand) -> None:
        del command
        self.close(run, COMPLETED)

    def _fail_workflow_execution(self, run: Run, command: WorkflowCommand) -> None:
        run.reason = command.fail_workflow_execution.failure.message
        self.close(run, FAILED)

    def _continue_as_new_workflow_execution(self, run: Run, command: WorkflowCommand) -> None:
        wanted = command.continue_as_new_workflow_execution
        fields = dict(wanted.search_attributes.indexed_fields.items())
        self.close(run, CONTINUED)
        following = self._new_run(
            wanted.workflow_type or run.kind,
            run.workflow_id,
            wanted.task_queue or run.queue,
            wanted.arguments,
            memo=dict(wanted.memo.items()) or dict(run.memo_fields),
            attributes=fields or dict(run.attribute_fields),
            before=run,
        )
        run.next_run_id = following.run_id
        # A continued run is never queried; its successor answers.
        run.recorded.clear()

    # Queries

    async def query(self, run: Run, name: str, arguments: Sequence[Any]) -> WorkflowCommand:
        """Query a run, on the worker that has it or on any.

        The workflow has read all earlier messages when it answers.
        """
        tasks = self.tasks
        if self.is_poisoned(run, Poison.FAILING):
            text = "Unable to query workflow due to Workflow Task in failed state."
            raise RPCError(text, RPCStatusCode.FAILED_PRECONDITION, b"")
        if self.is_poisoned(run, Poison.SILENT):
            # The caller waits until its timeout.
            await asyncio.Event().wait()
        if self.is_poisoned(run, Poison.UNREADABLE):
            answer = WorkflowCommand()
            answer.respond_to_query.succeeded.response.CopyFrom(unreadable_payload("answer"))
            return answer
        while True:
            await run.idle.wait()
            if run.is_open and run.inbox:
                await asyncio.sleep(_QUERY_LOOK)
                continue
            worker = run.worker or self.world.workers.pick(run.queue)
            ready = run.recorded or (run.instance is not None and run.tasks)
            silent = self.world.clock.seconds() < run.silent_until
            if worker is not None and not self.down and ready and not silent:
                break
            if not run.is_open and not run.recorded:
                raise RPCError("no history to replay", RPCStatusCode.NOT_FOUND, b"")
            await asyncio.sleep(0.5)
        if run.is_open:
            tasks.load(run, worker)
            assert run.instance is not None
            return tasks.query(run.instance, run, name, arguments)
        instance = tasks.replayed(run, worker)
        try:
            return tasks.query(instance, run, name, arguments)
        finally:
            tasks.drop(instance, run)

    def replay_all(self) -> None:
        """Replay the last run of every execution. Raises Nondeterminism."""
        for execution in self.executions.values():
            run = execution.run
            worker = run.worker or self.world.workers.pick(run.queue)
            if worker is not None and not run.task_open:
                self.tasks.drop(self.tasks.replayed(run, worker), run)
                run.unreplayed = None
        self.settle_all()

    def settle_all(self) -> None:
        """Replay each run that continued with a saved instance. A difference is an error of
        the world.
        """
        for execution in self.executions.values():
            if execution.run.unreplayed is not None:
                self.tasks.settle(execution.run)

    # Visibility

    def publish(self, run: Run) -> None:
        """Show a run in visibility after a delay."""
        self._versions += 1
        row = Row(
            run.workflow_id,
            run.run_id,
            run.kind,
            run.status,
            run.reset_time or run.start_time,
            run.close_time,
            dict(run.attribute_fields),
            self._versions,
            run.closed,
        )
        late = self.world.faults.strikes("visibility.late", run.workflow_id)
        wait = self.draw.uniform(*(_VISIBLE_LATE if late else _VISIBLE_AFTER))
        asyncio.get_running_loop().call_later(wait, self._show, row)

    def _show(self, row: Row) -> None:
        known = self.rows.get(row.run_id)
        if known is None or known.version < row.version:
            self.rows[row.run_id] = row

    def listed(self, holds: Callable[[Row], bool]) -> list[Row]:
        """Return the rows of visibility that a filter wants, the newest first."""
        retained = (row for row in self.rows.values() if self._is_retained(row.closed))
        found = [row for row in retained if holds(row)]
        found.sort(key=lambda row: (row.start_time, row.run_id), reverse=True)
        return [
            row
            for row in found
            if not self.world.faults.strikes("visibility.incomplete", row.workflow_id)
        ]

    def payloads(self, values: Sequence[Any]) -> list[Payload]:
        """Encode values."""
        return list(_CONVERTER.to_payloads(list(values))) if values else []


def _resolves(job: WorkflowActivationJob, seq: int) -> bool:
    return job.HasField("resolve_activity") and job.resolve_activity.seq == seq
