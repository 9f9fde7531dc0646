"""Workflow tasks: how a worker runs them, and how it replays a run.

A task has one activation or more: each local activity that ends within it gives another. Its
commands reach the server together when it is complete; a worker that dies before leaves only the
effects of its local activities. The commands of a replay are compared with the recorded ones,
byte for byte.
"""

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from temporalio.api.enums.v1 import RetryState
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_commands import ActivityCancellationType, WorkflowCommand
from temporalio.bridge.proto.workflow_completion import Success, WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance

from tests.simulation.poisons import Poison
from tests.simulation.runs import PendingActivity, RecordedTask, Run
from tests.simulation.workers import Worker, evict, outside_loop, release

if TYPE_CHECKING:
    from tests.simulation.server import Server

TASK_SECONDS = 10.0
"""After this time the server gives up a task, unless its worker heartbeats."""
_HEARTBEAT_SECONDS = 8.0
_RETRY_SECONDS = 60.0
"""Between two attempts at a task that always fails. The server makes a few more at first."""
_PROCESSOR_SECONDS = 20.0
"""No task needs as much. Temporal's SDK gives up a task after two seconds."""
_CLOSES = {
    "complete_workflow_execution",
    "fail_workflow_execution",
    "cancel_workflow_execution",
    "continue_as_new_workflow_execution",
}
_ORDER = {
    "initialize_workflow": 0,
    "notify_has_patch": 1,
    "update_random_seed": 2,
    "signal_workflow": 3,
    "do_update": 3,
}


class Nondeterminism(Exception):
    """A replay gave other commands than the run."""


@dataclass(eq=False)
class OpenTask:
    """A task that a worker works on."""

    run: Run
    worker: Worker
    commands: list[WorkflowCommand] = field(default_factory=list)
    activations: list[tuple[WorkflowActivation, bytes]] = field(default_factory=list)
    patches: list[str] = field(default_factory=list)
    local: dict[int, PendingActivity] = field(default_factory=dict)
    results: "asyncio.Queue[WorkflowActivationJob]" = field(default_factory=asyncio.Queue)
    markers: list[int] = field(default_factory=list)

    @property
    def closes(self) -> bool:
        """Whether it ends the run."""
        return any(kind_of(command) in _CLOSES for command in self.commands)


def kind_of(command: WorkflowCommand) -> str:
    """Name the kind of a command."""
    return str(command.WhichOneof("variant"))


class Tasks:
    """Runs workflow tasks for the server."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._world = server.world

    def wake(self, run: Run, delay: float = 0.0) -> None:
        """Plan a task if something arrived and none is planned."""
        due = run.inbox or run.unfinished_task
        if not run.is_open or run.task_open or run.task_planned or not due:
            return
        run.task_planned = True
        wait = delay + self._server.draw.uniform(0.002, 0.05)
        asyncio.get_running_loop().call_later(wait, self._begin, run)

    def _begin(self, run: Run) -> None:
        run.task_planned = False
        if not run.is_open or run.task_open or not (run.inbox or run.unfinished_task):
            return
        if self._server.is_poisoned(run, Poison.FAILING):
            if run.worker is not None:
                run.worker.evict(run)
            self.wake(run, _RETRY_SECONDS)
            return
        late = run.silent_until - self._world.clock.seconds()
        if self._server.down or late > 0:
            self.wake(run, max(late, 1.0))
            return
        worker = run.worker or self._world.workers.pick(run.queue)
        if worker is None or run.queue in worker.refused:
            # A task on the queue of a worker that died waits there first.
            self.wake(run, 1.0)
            return
        run.task_open = True
        run.idle.clear()
        self._take_inbox(run)
        # The start of a task is an event, so its activation shows a longer history.
        run.add_event(count=2)
        run.task_events = run.events
        run.suggested = run.events > self._server.events_max or run.bytes > self._server.bytes_max
        now = self._world.clock.now()
        run.time = now if run.time is None else max(run.time, now)
        task = worker.spawn(self._work(run, worker), f"task of {run.workflow_id}")
        task.add_done_callback(
            lambda done: self._lost(run, died=done.cancelled() or not worker.alive)
        )

    def _take_inbox(self, run: Run) -> None:
        run.taken, run.inbox = run.inbox, []
        for job in run.taken:
            if job.HasField("resolve_activity"):
                run.activities.pop(job.resolve_activity.seq, None)

    def _lost(self, run: Run, *, died: bool) -> None:
        """Notice that the worker of a task has died, when the time of the task is up."""
        if not died or not run.task_open:
            return
        asyncio.get_running_loop().call_later(TASK_SECONDS, self._give_back, run)

    def _give_back(self, run: Run) -> None:
        if not run.task_open:
            return
        self._take_back(run)
        self.wake(run)

    def _take_back(self, run: Run) -> None:
        """Return the jobs of a failed task to the inbox."""
        run.inbox = run.taken + run.inbox
        run.patches = {patch for recorded in run.recorded for patch in recorded.patches}
        run.add_event()
        self._close(run)

    def _close(self, run: Run) -> None:
        run.task_open, run.taken = False, []
        run.idle.set()

    async def _work(self, run: Run, worker: Worker) -> None:
        """Work on one task. A kill cancels this coroutine."""
        world = self._world
        if world.faults.strikes(
            "worker.kill.task", f"{worker.name} before a task of {run.workflow_id}"
        ):
            world.workers.kill(worker)
            await asyncio.sleep(0)
        self.load(run, worker)
        task = OpenTask(run, worker)
        if run.unfinished_task:
            # The history has no result of these local activities, so they start once more.
            for seq, command in unresolved(run).items():
                task.local[seq] = self._server.attempts.start_local(task, command)
        jobs: Sequence[WorkflowActivationJob] = run.taken
        begun = world.clock.seconds()
        while True:
            if jobs:
                jobs = self._activate(task, jobs)
                continue
            if not task.local:
                break
            left = begun + _HEARTBEAT_SECONDS - world.clock.seconds()
            try:
                jobs = [await asyncio.wait_for(task.results.get(), max(left, 0.0))]
            except TimeoutError:
                jobs, begun = self._beat(task), world.clock.seconds()
        if world.faults.strikes(
            "worker.kill.task", f"{worker.name} after a task of {run.workflow_id}"
        ):
            world.workers.kill(worker)
            await asyncio.sleep(0)
        await self._server.reachable()
        self._complete(task)

    def _activate(
        self, task: OpenTask, jobs: Sequence[WorkflowActivationJob]
    ) -> list[WorkflowActivationJob]:
        """Let the workflow read jobs. Return the jobs that follow from its commands at once."""
        run = task.run
        activation = WorkflowActivation(
            run_id=run.run_id,
            history_length=run.task_events,
            history_size_bytes=run.bytes,
            continue_as_new_suggested=run.suggested,
        )
        now = self._world.clock.now()
        if run.time is None or (task.activations and now > run.time):
            run.time = now
        activation.timestamp.FromDatetime(run.time)
        activation.jobs.extend(sorted(jobs, key=_order))
        assert run.instance is not None
        run.ahead = True
        try:
            completion = activate(run.instance, activation)
        except EndlessTaskError:
            run.instance = run.saved = None  # It cannot be evicted.
            message = f"it needs more than {_PROCESSOR_SECONDS:g} s of processor time"
            raise AssertionError(f"a workflow task of {run.workflow_id}: {message}") from None
        if completion.HasField("failed"):
            message = _text(completion.failed.failure)
            run.failures.append(message)
            raise AssertionError(f"a workflow task of {run.workflow_id} failed: {message}")
        commands = completion.successful.commands
        task.activations.append((activation, _bytes(completion)))
        return [job for command in commands for job in self._take(task, command)]

    def _take(self, task: OpenTask, command: WorkflowCommand) -> list[WorkflowActivationJob]:
        """Take a command: local activities start at once, all others wait for the task's end."""
        kind, run = kind_of(command), task.run
        if kind == "schedule_local_activity":
            started = self._server.attempts.start_local(task, command)
            task.local[command.schedule_local_activity.seq] = started
        elif kind == "request_cancel_local_activity":
            return self._cancel_local(task, command.request_cancel_local_activity.seq)
        elif kind == "request_cancel_activity":
            return self._cancel(task, command)
        elif kind == "set_patch_marker":
            if command.set_patch_marker.patch_id not in run.patches:
                run.patches.add(command.set_patch_marker.patch_id)
                task.patches.append(command.set_patch_marker.patch_id)
        else:
            task.commands.append(command)
        return []

    def _cancel_local(self, task: OpenTask, seq: int) -> list[WorkflowActivationJob]:
        pending = task.local.get(seq)
        if pending is None:
            return []
        if (
            pending.command.cancellation_type
            == ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
        ):
            pending.request_cancel()
            return []
        del task.local[seq]
        pending.forget()
        task.markers.append(seq)
        return [cancelled_job(seq, pending, local=True)]

    def _cancel(self, task: OpenTask, command: WorkflowCommand) -> list[WorkflowActivationJob]:
        seq = command.request_cancel_activity.seq
        for scheduled in task.commands:
            if kind_of(scheduled) == "schedule_activity" and scheduled.schedule_activity.seq == seq:
                # It never reaches the server.
                task.commands.remove(scheduled)
                return [cancelled_job(seq, self._server.attempts.unsent(task.run, scheduled))]
        pending = task.run.activities.get(seq)
        task.commands.append(command)
        if pending is None or pending.command.cancellation_type == (
            ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
        ):
            return []
        return [cancelled_job(seq, pending)]

    def _beat(self, task: OpenTask) -> Sequence[WorkflowActivationJob]:
        """Complete the task so far and begin another one, in which its local activities go on."""
        run = task.run
        if self._server.down or not run.is_open:
            return []
        self._record(task)
        for command in task.commands:
            self._server.apply(run, command)
        task.commands.clear()
        run.unfinished_task = True
        self._take_inbox(run)
        run.add_event(count=2)
        run.task_events = run.events
        return list(run.taken)

    def _record(self, task: OpenTask) -> None:
        run = task.run
        run.add_event()
        run.add_event(
            count=2 * len(task.patches) + len(task.markers), payload_bytes=200 * len(task.markers)
        )
        task.markers.clear()
        run.recorded.append(RecordedTask(list(task.activations), list(task.patches)))
        task.activations.clear()
        task.patches.clear()
        run.tasks += 1
        run.ahead = False

    def _complete(self, task: OpenTask) -> None:
        run = task.run
        if not run.is_open:
            # It was terminated meanwhile.
            task.worker.evict(run)
            self._close(run)
            return
        if task.closes and run.inbox:
            # The server refuses to end a run that has not read all: UNHANDLED_COMMAND.
            task.worker.evict(run)
            self._take_back(run)
            self._world.note("unhandled", run.workflow_id)
            self.wake(run)
            return
        jobs = ", ".join(sorted({str(job.WhichOneof("variant")) for job in run.taken}))
        self._record(task)
        run.unfinished_task = False
        commands = list(task.commands)
        for command in commands:
            self._server.apply(run, command)
        self._close(run)
        if not run.is_open:
            run.ended = run.workflow
            task.worker.evict(run)
        self._world.note(
            "task", run.workflow_id, f"{jobs} -> {', '.join(kind_of(each) for each in commands)}"
        )
        self.wake(run)

    # Replay

    def load(self, run: Run, worker: Worker) -> None:
        """Bring a run into the cache of a worker: its saved instance, or one from its history."""
        if run.instance is not None:
            return
        if run.saved is None:
            run.instance, run.unreplayed = self.replayed(run, worker), None
        else:
            run.instance, run.unreplayed, run.saved = run.saved, worker, None
        run.worker = worker
        worker.keep(run)

    def settle(self, run: Run) -> None:
        """Replay a run that continued with a saved instance. A difference ends the simulation."""
        worker, run.unreplayed = run.unreplayed, None
        release(run)
        if worker is None:
            return
        try:
            self.drop(self.replayed(run, worker), run)
        except Nondeterminism as error:
            self._world.broke(error)

    def replayed(self, run: Run, worker: Worker) -> WorkflowInstance:
        """Replay a run into a new instance. Raises Nondeterminism."""
        instance = worker.new_instance(run)
        for number, recorded in enumerate(run.recorded, 1):
            for index, (live, expected) in enumerate(recorded.activations):
                activation = WorkflowActivation()
                activation.CopyFrom(live)
                activation.is_replaying = True
                if index == 0:
                    for patch in recorded.patches:
                        activation.jobs.add().notify_has_patch.patch_id = patch
                    ordered = sorted(activation.jobs, key=_order)
                    del activation.jobs[:]
                    activation.jobs.extend(ordered)
                completion = activate(instance, activation)
                if not _is_equal(run, _bytes(completion), expected):
                    raise Nondeterminism(_difference(run, number, completion, expected))
        if run.recorded:
            self._world.replays += 1
        return instance

    def query(
        self, instance: WorkflowInstance, run: Run, name: str, arguments: Sequence[object]
    ) -> WorkflowCommand:
        """Query an instance."""
        activation = WorkflowActivation(
            run_id=run.run_id,
            history_length=run.task_events,
            history_size_bytes=run.bytes,
            is_replaying=False,
        )
        activation.timestamp.FromDatetime(run.time or run.start_time)
        query = activation.jobs.add().query_workflow
        query.query_id, query.query_type = "query", name
        query.arguments.extend(self._server.payloads(arguments))
        completion = activate(instance, activation)
        if completion.HasField("failed"):
            raise AssertionError(
                f"a query {name} of {run.workflow_id} failed: {_text(completion.failed.failure)}"
            )
        answer: WorkflowCommand = completion.successful.commands[0]
        return answer

    def drop(self, instance: WorkflowInstance, run: Run) -> None:
        """End an instance that is in no cache."""
        evict(instance, run.run_id)


def unresolved(run: Run) -> dict[int, WorkflowCommand]:
    """Return the local activities that a run has scheduled and whose results are not recorded."""
    found: dict[int, WorkflowCommand] = {}
    for recorded in run.recorded:
        for activation, answer in recorded.activations:
            for job in activation.jobs:
                if job.resolve_activity.is_local:
                    found.pop(job.resolve_activity.seq)
            for command in Success.FromString(answer).commands:
                if kind_of(command) == "schedule_local_activity":
                    found[command.schedule_local_activity.seq] = command
    return found


class EndlessTaskError(Exception):
    """A workflow task does not end."""


def activate(
    instance: WorkflowInstance, activation: WorkflowActivation
) -> WorkflowActivationCompletion:
    """Activate an instance from within the loop of the simulation.

    Raises EndlessTaskError if the workflow never waits. Only the time of this process
    counts, so a busy machine makes no difference.
    """
    ended: list[bool] = []

    def end(*_: object) -> None:
        ended.append(True)
        raise EndlessTaskError

    before = signal.signal(signal.SIGVTALRM, end)
    # A callback of the loop may swallow the error, so it is raised again.
    signal.setitimer(signal.ITIMER_VIRTUAL, _PROCESSOR_SECONDS, _PROCESSOR_SECONDS)
    try:
        completion: WorkflowActivationCompletion = outside_loop(
            lambda: instance.activate(activation)
        )
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    if ended:
        raise EndlessTaskError
    return completion


def cancelled_job(
    seq: int, pending: PendingActivity, *, local: bool = False
) -> WorkflowActivationJob:
    """Return the job that resolves an activity as cancelled."""
    job = WorkflowActivationJob()
    job.resolve_activity.seq, job.resolve_activity.is_local = seq, local
    failure = job.resolve_activity.result.cancelled.failure
    failure.message = "Activity cancelled"
    failure.cause.canceled_failure_info.SetInParent()
    set_activity_info(failure, pending, RetryState.RETRY_STATE_CANCEL_REQUESTED)
    return job


def set_activity_info(
    failure: Failure, pending: PendingActivity, retry_state: "RetryState.ValueType"
) -> None:
    """Name the activity of a failure."""
    info = failure.activity_failure_info
    info.activity_type.name, info.activity_id = pending.name, pending.command.activity_id
    info.retry_state = retry_state


def _order(job: WorkflowActivationJob) -> int:
    return _ORDER.get(str(job.WhichOneof("variant")), 4)


def _bytes(completion: WorkflowActivationCompletion) -> bytes:
    found: bytes = completion.successful.SerializeToString(deterministic=True)
    return found


def _is_equal(run: Run, replayed: bytes, expected: bytes) -> bool:
    """Compare commands. A run that was reset is another one than the run that gave its commands.

    Temporal does not compare the arguments of commands.
    """
    for run_id in run.reset_from:
        expected = expected.replace(run_id.encode(), run.run_id.encode())
        replayed = replayed.replace(run_id.encode(), run.run_id.encode())
    return replayed == expected


def _text(failure: Failure) -> str:
    lines = [failure.message, failure.stack_trace[-1500:]]
    if failure.HasField("cause"):
        lines.append(_text(failure.cause))
    return "\n".join(line for line in lines if line)


def _difference(
    run: Run, number: int, completion: WorkflowActivationCompletion, expected: bytes
) -> str:
    before = WorkflowActivationCompletion()
    before.successful.ParseFromString(expected)
    found = _text(completion.failed.failure) if completion.HasField("failed") else ""
    now = completion.successful.commands
    then = before.successful.commands
    pairs = [(a, b) for a, b in zip(then, now, strict=False) if a != b]
    first = f"first difference: {pairs[0][0]!s} replayed as {pairs[0][1]!s}" if pairs else ""
    kinds = [[kind_of(each) for each in side] for side in (then, now)]
    return (
        f"nondeterminism: task {number} of {run.workflow_id} ({run.run_id}) gave {kinds[0]}, "
        f"and its replay {kinds[1]}. {first}{found}"
    )
