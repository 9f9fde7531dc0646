"""Activities: attempts on workers, with heartbeats, timeouts, retries and cancellation.

The server's part is the life of an activity: it is scheduled, taken by a worker, repeated. A
worker's part is one attempt, in the SDK's own environment for activities.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from google.protobuf.duration_pb2 import Duration
from temporalio import activity
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.enums.v1 import RetryState, TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from activities.arguments import ArgumentCheck, tolerant
from fleet_client.temporal.converter import DATA_CONVERTER
from tests.simulation.poisons import Poison
from tests.simulation.runs import PendingActivity, Run
from tests.simulation.tasks import OpenTask, set_activity_info
from tests.simulation.workers import Worker, WorkerDied

if TYPE_CHECKING:
    from tests.simulation.server import Server

_CONVERTER = DATA_CONVERTER.payload_converter
_TOLERANT = tolerant(DATA_CONVERTER).payload_converter
# The SDK sends a heartbeat after this part of the timeout.
_THROTTLE = 0.8
_THROTTLE_MAX_SECONDS = 60.0
_LOOK_SECONDS = 1.0
# Activities never raise these by design, and Temporal would retry them for ever.
_DEFECTS = (AssertionError, AttributeError, LookupError, NameError, NotImplementedError, TypeError)
_LOCAL_STARTS = (0.0005, 0.005)


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: a result, a failure, a cancellation or a timeout."""

    kind: str
    result: Payload | None = None
    failure: Failure | None = None
    next_delay: float | None = None


class _Call(ActivityInboundInterceptor):
    """Calls the function, inside all interceptors."""

    def __init__(self) -> None:
        """Have no next interceptor."""

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        found = input.fn(*input.args)
        return await found if asyncio.iscoroutine(found) else found


_CHECKED = ArgumentCheck().intercept_activity(_Call())


class Attempts:
    """Runs activities for the server."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._world = server.world

    # Remote activities

    def start(self, run: Run, command: WorkflowCommand) -> None:
        seq = command.schedule_activity.seq
        run.activities[seq] = pending = self.unsent(run, command)
        pending.task = self._world.spawn(
            self._live(seq, pending), f"{pending.name} of {run.workflow_id}"
        )

    def unsent(self, run: Run, command: WorkflowCommand) -> PendingActivity:
        """Return an activity that no worker has seen."""
        return PendingActivity(
            run=run,
            command=command.schedule_activity,
            scheduled=self._world.clock.seconds(),
            scheduled_time=self._world.clock.now(),
        )

    async def _live(self, seq: int, pending: PendingActivity) -> None:
        outcome, state = await self._outcome(pending)
        if pending.gone or outcome is None:
            return
        run = pending.run
        pending.state = "resolved"
        job = WorkflowActivationJob()
        job.resolve_activity.seq = seq
        _resolve(job, pending, outcome, state)
        self._world.note(
            "activity", run.workflow_id, f"{pending.name} {outcome.kind} {_words(outcome)}".strip()
        )
        # The server writes the events of its start and its end together.
        self._server.deliver(run, job, events=2, size=job.ByteSize())

    async def _outcome(
        self, pending: PendingActivity
    ) -> tuple[Outcome | None, "RetryState.ValueType"]:
        command = pending.command
        policy = RetryPolicy.from_proto(command.retry_policy)
        limit = _seconds(command.schedule_to_close_timeout)
        ends = pending.scheduled + limit if limit else float("inf")
        while True:
            pending.state, pending.begins = "scheduled", self._world.clock.seconds()
            waited = (
                _seconds(getattr(command, "schedule_to_start_timeout", None))
                if not pending.local
                else None
            )
            starts = pending.begins + waited if waited else float("inf")
            worker = await self._worker(pending, min(starts, ends))
            if pending.gone:
                return None, RetryState.RETRY_STATE_UNSPECIFIED
            if pending.cancel_requested:
                return Outcome("cancelled"), RetryState.RETRY_STATE_CANCEL_REQUESTED
            if worker is None:
                schedule_to_start = starts <= ends
                kind = (
                    TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START
                    if schedule_to_start
                    else TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE
                )
                return _timed_out(kind, pending), RetryState.RETRY_STATE_NON_RETRYABLE_FAILURE
            outcome = await self._attempt(pending, worker, ends)
            if pending.gone:
                return None, RetryState.RETRY_STATE_UNSPECIFIED
            if outcome.kind in ("completed", "cancelled"):
                return outcome, RetryState.RETRY_STATE_CANCEL_REQUESTED
            state = _stops(outcome, pending, policy)
            if state is None:
                delay = (
                    outcome.next_delay
                    if outcome.next_delay is not None
                    else _backoff(policy, pending.attempt)
                )
                if self._world.clock.seconds() + delay > ends:
                    return self._too_late(outcome, pending), RetryState.RETRY_STATE_TIMEOUT
                pending.state, pending.last_failure = "backoff", outcome.failure
                if outcome.failure is not None:
                    self._world.note(
                        "attempt",
                        pending.run.workflow_id,
                        f"{pending.name} attempt {pending.attempt} {_words(outcome)}",
                    )
                await self._pause(pending, delay)
                pending.attempt += 1
                if pending.cancel_requested and not pending.gone:
                    return Outcome("cancelled"), RetryState.RETRY_STATE_CANCEL_REQUESTED
                continue
            return outcome, state

    def _too_late(self, outcome: Outcome, pending: PendingActivity) -> Outcome:
        # A timeout of the attempt becomes a timeout of the activity, caused by the last failure.
        if outcome.kind != "timeout":
            return outcome
        return _timed_out(TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, pending)

    async def _worker(self, pending: PendingActivity, until: float) -> Worker | None:
        """Wait for a worker that polls the task queue."""
        await asyncio.sleep(self._server.draw.uniform(0.002, 0.05))
        while not (pending.gone or pending.cancel_requested):
            worker = (
                None if self._server.down else self._world.workers.pick(pending.queue, pending.name)
            )
            if worker is not None:
                return worker
            left = until - self._world.clock.seconds()
            if left <= 0:
                return None
            await self._pause(pending, min(left, _LOOK_SECONDS))
        return None

    async def _pause(self, pending: PendingActivity, seconds: float) -> None:
        if pending.gone or pending.cancel_requested:
            return
        pending.changed.clear()
        try:
            await asyncio.wait_for(pending.changed.wait(), seconds)
        except TimeoutError:
            return

    async def _attempt(self, pending: PendingActivity, worker: Worker, ends: float) -> Outcome:
        """Run one attempt until it ends or times out."""
        loop, command = asyncio.get_running_loop(), pending.command
        outcome: asyncio.Future[Outcome] = loop.create_future()
        pending.state = "started"
        attempt = _Attempt(self, pending, worker, outcome)
        heartbeat = (
            _seconds(getattr(command, "heartbeat_timeout", None)) if not pending.local else None
        )
        close = min(_seconds(command.start_to_close_timeout) or float("inf"), ends - loop.time())
        limits: list[asyncio.TimerHandle] = []

        def over(kind: "TimeoutType.ValueType") -> None:
            if not outcome.done():
                outcome.set_result(_timed_out(kind, pending))
                # The worker measures the timeout too, and cancels the attempt slightly
                # later.
                loop.call_later(5.0, attempt.give_up)

        def missed() -> None:
            if outcome.done():
                return
            left = attempt.heard + (heartbeat or 0.0) - loop.time()
            if left <= 1e-6:
                over(TimeoutType.TIMEOUT_TYPE_HEARTBEAT)
            else:
                limits.append(loop.call_later(left, missed))

        if close != float("inf"):
            limits.append(
                loop.call_later(max(close, 0.0), over, TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE)
            )
        if heartbeat:
            missed()
        attempt.begin()
        try:
            while not outcome.done():
                if pending.gone:
                    attempt.stale = True
                    return Outcome("gone")
                if pending.local and pending.cancel_requested:
                    attempt.cancel()
                pending.changed.clear()
                changed = asyncio.ensure_future(pending.changed.wait())
                either: list[asyncio.Future[Any]] = [outcome, changed]
                try:
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
            return outcome.result()
        finally:
            for each in limits:
                each.cancel()

    # Local activities

    def start_local(self, task: OpenTask, command: WorkflowCommand) -> PendingActivity:
        """Start a local activity within a workflow task, which receives its result."""
        local = command.schedule_local_activity
        pending = PendingActivity(
            run=task.run,
            command=local,
            scheduled=self._world.clock.seconds(),
            scheduled_time=self._world.clock.now(),
            local=True,
            attempt=max(local.attempt, 1),
        )
        pending.task = task.worker.spawn(
            self._live_local(task, local.seq, pending), f"local {pending.name}"
        )
        return pending

    async def _live_local(self, task: OpenTask, seq: int, pending: PendingActivity) -> None:
        outcome, state = await self._local_outcome(task, pending)
        if outcome is None or task.local.pop(seq, None) is None:
            return
        task.markers.append(seq)
        job = WorkflowActivationJob()
        job.resolve_activity.seq, job.resolve_activity.is_local = seq, True
        _resolve(job, pending, outcome, state)
        task.results.put_nowait(job)

    async def _local_outcome(
        self, task: OpenTask, pending: PendingActivity
    ) -> tuple[Outcome | None, "RetryState.ValueType"]:
        policy = RetryPolicy.from_proto(pending.command.retry_policy)
        while True:
            await asyncio.sleep(self._server.draw.uniform(*_LOCAL_STARTS))
            outcome = await self._attempt(pending, task.worker, float("inf"))
            if pending.gone:
                return None, RetryState.RETRY_STATE_UNSPECIFIED
            state = RetryState.RETRY_STATE_UNSPECIFIED
            if outcome.kind in ("completed", "cancelled"):
                return outcome, state
            found = _stops(outcome, pending, policy)
            if found is not None:
                return outcome, found
            await asyncio.sleep(_backoff(policy, pending.attempt))
            pending.attempt += 1


class _Attempt:
    """One attempt on a worker."""

    def __init__(
        self,
        attempts: Attempts,
        pending: PendingActivity,
        worker: Worker,
        outcome: "asyncio.Future[Outcome]",
    ) -> None:
        self._attempts, self._server, self._world = attempts, attempts._server, attempts._world
        self._pending, self._worker, self._outcome = pending, worker, outcome
        self._loop = asyncio.get_running_loop()
        self.heard = self._loop.time()
        self.stale = False
        """The server has already ended this attempt."""
        self._sent = float("-inf")
        self._due: asyncio.TimerHandle | None = None
        self._details: tuple[Any, ...] = ()
        self._by_request = False
        self._environment = ActivityEnvironment(self._worker_client())
        self._environment.info = self._info()
        self._environment.on_heartbeat = self._heartbeat
        self._environment.payload_converter = _CONVERTER
        outcome.add_done_callback(self._settled)

    def _worker_client(self) -> Any:
        return self._world.client_of(self._worker)

    def begin(self) -> None:
        """Start it on its worker."""
        self._worker.spawn(self._work(), f"{self._pending.name} of {self._pending.run.workflow_id}")

    def give_up(self) -> None:
        """Cancel the attempt as the SDK does after a timeout, or when the server has
        forgotten it.
        """
        if self._worker.alive:
            self._environment.cancel(activity.ActivityCancellationDetails(timed_out=True))

    def cancel(self) -> None:
        """Cancel the attempt because its workflow requested the cancellation."""
        self._by_request = True
        if self._worker.alive:
            self._environment.cancel()

    def _settled(self, _: "asyncio.Future[Outcome]") -> None:
        self.stale = True

    async def _work(self) -> None:
        pending, world = self._pending, self._world
        place = f"{pending.name} of {pending.run.workflow_id}"
        if world.faults.strikes("worker.kill.activity", f"{self._worker.name} before {place}"):
            world.workers.kill(self._worker)
            await asyncio.sleep(0)
        function = self._worker.activities.get(pending.name)
        if function is None:
            raise AssertionError(f"no worker has the activity {pending.name}")
        if self._server.is_poisoned(pending.run, Poison.SILENT):
            await asyncio.Event().wait()
        outcome = await self._run(function)
        if world.faults.strikes("worker.kill.activity", f"{self._worker.name} after {place}"):
            world.workers.kill(self._worker)
            await asyncio.sleep(0)
        if self._due is not None:
            self._due.cancel()
        if not pending.local:
            await asyncio.sleep(self._server.draw.uniform(0.002, 0.02))
            await self._server.reachable()
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    async def _run(self, function: Callable[..., Any]) -> Outcome:
        found = activity._Definition.must_from_callable(function)
        payloads = self._pending.command.arguments
        hints = (
            found.arg_types if found.arg_types and len(found.arg_types) == len(payloads) else None
        )
        arguments = _TOLERANT.from_payloads(payloads, hints)
        call = ExecuteActivityInput(fn=function, args=arguments, executor=None, headers={})
        try:
            result = await self._environment.run(_CHECKED.execute_activity, call)
            return Outcome("completed", _CONVERTER.to_payloads([result])[0])
        except WorkerDied:
            raise
        except BaseException as error:
            cancelled = isinstance(error, (asyncio.CancelledError, CancelledError))
            if not self._worker.alive:
                raise
            if cancelled and self._by_request:
                return Outcome("cancelled")
            if cancelled and not self._environment._cancelled:
                raise
            if isinstance(error, _DEFECTS):
                self._world.broke(error)
            return _failed(error)

    def _heartbeat(self, *details: Any) -> None:
        """Send a heartbeat now, or later if the last one was sent recently."""
        if not self._worker.alive:
            raise WorkerDied
        self._details = details
        timeout = self._environment.info.heartbeat_timeout
        throttle = _THROTTLE_MAX_SECONDS
        if timeout is not None:
            throttle = min(timeout.total_seconds() * _THROTTLE, _THROTTLE_MAX_SECONDS)
        left = self._sent + throttle - self._loop.time()
        if left <= 0:
            self._send()
        elif self._due is None:
            self._due = self._loop.call_later(left, self._send)

    def _send(self) -> None:
        self._due = None
        if not self._worker.alive:
            return
        self._sent = self._loop.time()
        if self._server.down or self._world.faults.strikes("heartbeat.lost", self._pending.name):
            return
        if self._pending.cancel_requested:
            self.cancel()
        elif self.stale or self._pending.gone:
            self.give_up()
        if not self.stale:
            self.heard = self._loop.time()
            self._pending.details = list(_CONVERTER.to_payloads(list(self._details)))

    def _info(self) -> activity.Info:
        pending, now = self._pending, self._world.clock.now()
        command, run = pending.command, pending.run
        heartbeat = (
            _seconds(getattr(command, "heartbeat_timeout", None)) if not pending.local else None
        )
        started, closes = (
            _seconds(command.start_to_close_timeout),
            _seconds(command.schedule_to_close_timeout),
        )
        return replace(
            ActivityEnvironment.default_info(),
            activity_id=command.activity_id,
            activity_type=pending.name,
            attempt=pending.attempt,
            current_attempt_scheduled_time=now,
            heartbeat_details=_CONVERTER.from_payloads(pending.details),
            heartbeat_timeout=timedelta(seconds=heartbeat) if heartbeat else None,
            is_local=pending.local,
            schedule_to_close_timeout=timedelta(seconds=closes) if closes else None,
            scheduled_time=pending.scheduled_time,
            start_to_close_timeout=timedelta(seconds=started) if started else None,
            started_time=now,
            task_queue=pending.queue,
            task_token=b"token",
            workflow_id=run.workflow_id,
            workflow_run_id=run.run_id,
            workflow_type=run.kind,
        )


def _seconds(duration: Duration | None) -> float | None:
    found = 0.0 if duration is None else duration.ToTimedelta().total_seconds()
    return found or None


def _backoff(policy: RetryPolicy, attempt: int) -> float:
    first = policy.initial_interval.total_seconds() or 1.0
    longest = policy.maximum_interval.total_seconds() if policy.maximum_interval else 100 * first
    return float(min(first * policy.backoff_coefficient ** min(attempt - 1, 60), longest))


def _stops(
    outcome: Outcome, pending: PendingActivity, policy: RetryPolicy
) -> "RetryState.ValueType | None":
    """Return the reason that no other attempt follows, or None if another one follows."""
    if pending.cancel_requested:
        return RetryState.RETRY_STATE_CANCEL_REQUESTED
    failure = outcome.failure
    if failure is not None and failure.HasField("application_failure_info"):
        info = failure.application_failure_info
        if info.non_retryable or info.type in (policy.non_retryable_error_types or ()):
            return RetryState.RETRY_STATE_NON_RETRYABLE_FAILURE
    if policy.maximum_attempts and pending.attempt >= policy.maximum_attempts:
        return RetryState.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED
    return None


def _timed_out(kind: "TimeoutType.ValueType", pending: PendingActivity) -> Outcome:
    name = TimeoutType.Name(kind).removeprefix("TIMEOUT_TYPE_").title().replace("_", "")
    failure = Failure(message=f"activity {name} timeout", source="Server")
    failure.timeout_failure_info.timeout_type = kind
    if pending.details:
        failure.timeout_failure_info.last_heartbeat_details.CopyFrom(
            Payloads(payloads=pending.details)
        )
    if pending.last_failure is not None:
        failure.cause.CopyFrom(pending.last_failure)
    return Outcome("timeout", failure=failure)


def _failed(error: BaseException) -> Outcome:
    failure = Failure()
    if not isinstance(error, Exception):
        error = CancelledError("Cancelled")
    DATA_CONVERTER.failure_converter.to_failure(error, _CONVERTER, failure)
    delay = error.next_retry_delay if isinstance(error, ApplicationError) else None
    return Outcome("failed", failure=failure, next_delay=delay.total_seconds() if delay else None)


def _resolve(
    job: WorkflowActivationJob,
    pending: PendingActivity,
    outcome: Outcome,
    state: "RetryState.ValueType",
) -> None:
    result = job.resolve_activity.result
    if outcome.kind == "completed":
        assert outcome.result is not None
        result.completed.result.CopyFrom(outcome.result)
        return
    if outcome.kind == "cancelled":
        failure = result.cancelled.failure
        failure.message = "Activity cancelled"
        failure.cause.canceled_failure_info.SetInParent()
        set_activity_info(failure, pending, state)
        return
    assert outcome.failure is not None
    failure = result.failed.failure
    if pending.local and outcome.kind == "failed":
        # The SDK passes on the failure of a local activity unchanged.
        failure.CopyFrom(outcome.failure)
        return
    failure.message = (
        "Activity task timed out" if outcome.kind == "timeout" else "Activity task failed"
    )
    failure.cause.CopyFrom(outcome.failure)
    set_activity_info(failure, pending, state)


def _words(outcome: Outcome) -> str:
    if outcome.failure is None:
        return ""
    info = outcome.failure.application_failure_info.type
    return f"({info}: {outcome.failure.message})" if info else f"({outcome.failure.message})"
