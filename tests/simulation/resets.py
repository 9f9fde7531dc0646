"""Resets: a new run begins with the first tasks of another run, as `temporal workflow reset` does.

The new run reads the signals and updates of the later tasks again, which is Temporal's default.
Timers run on from their start. Activities without a result begin again.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import Success

from tests.simulation.runs import RecordedTask, Run
from tests.simulation.tasks import kind_of, unresolved

if TYPE_CHECKING:
    from tests.simulation.server import Server

REASON = "reset"


def reset(server: "Server", base: Run, kept: int) -> Run:
    """End a run and start another one with its first `kept` tasks, which are fewer than it has."""
    following = base.recorded[kept]
    activation, _ = following.activations[0]
    run = Run(
        workflow_id=base.workflow_id,
        run_id=f"{server.draw.getrandbits(64):016x}",
        kind=base.kind,
        queue=base.queue,
        first_run_id=base.first_run_id,
        continued=base.continued,
        seed=base.seed,
        input=list(base.input),
        started=server.world.clock.seconds(),
        start_time=base.start_time,
        started_memo=base.started_memo,
        started_attributes=base.started_attributes,
        recorded=base.recorded[:kept],
        tasks=kept,
        events=activation.history_length,
        bytes=activation.history_size_bytes,
        reset_from=(*base.reset_from, base.run_id),
        reset_time=server.world.clock.now(),
        silent_until=base.silent_until,
        full_until=base.full_until,
    )
    run.patches = {patch for task in run.recorded for patch in task.patches}
    run.updates = {name: each for name, each in base.updates.items() if each.done()}
    if run.recorded:
        run.time = run.recorded[-1].activations[-1][0].timestamp.ToDatetime(base.start_time.tzinfo)
    inbox = [_new_seed(server), *_jobs(base, kept)]
    server.end(base, REASON)
    server.executions[base.workflow_id].runs.append(run)
    _restore(server, run, inbox)
    run.inbox = inbox
    run.unfinished_task = bool(unresolved(run))
    run.add_event()
    server.publish(run)
    server.tasks.wake(run)
    return run


def _new_seed(server: "Server") -> WorkflowActivationJob:
    job = WorkflowActivationJob()
    job.update_random_seed.randomness_seed = server.draw.getrandbits(63)
    return job


def _jobs(base: Run, kept: int) -> Iterator[WorkflowActivationJob]:
    """Yield the jobs of the first task that is not kept, and all later messages.

    The results of local activities come with the end of a task, so that task has none of them.
    """
    following, *later = base.recorded[kept:]
    first, *_ = following.activations[0]
    yield from (job for job in first.jobs if _is_there_at_the_start(job))
    activations = [
        *following.activations[1:],
        *(each for task in later for each in task.activations),
    ]
    for activation, _ in activations:
        yield from (job for job in activation.jobs if _is_message(job))
    yield from (job for job in (*base.taken, *base.inbox) if _is_message(job))


def _is_there_at_the_start(job: WorkflowActivationJob) -> bool:
    return not (job.resolve_activity.is_local or job.HasField("update_random_seed"))


def _is_message(job: WorkflowActivationJob) -> bool:
    return job.HasField("signal_workflow") or job.HasField("do_update")


def _restore(server: "Server", run: Run, inbox: Sequence[WorkflowActivationJob]) -> None:
    """Restore the timers, activities, memo and search attributes of the tasks that are kept."""
    waits: dict[tuple[str, int], tuple[RecordedTask, WorkflowCommand]] = {}
    cancelled: set[int] = set()
    for task in run.recorded:
        for activation, answer in task.activations:
            _resolve(waits, activation.jobs)
            for command in Success.FromString(answer).commands:
                kind = kind_of(command)
                if kind in ("start_timer", "schedule_activity"):
                    waits[kind, getattr(command, kind).seq] = task, command
                elif kind == "cancel_timer":
                    waits.pop(("start_timer", command.cancel_timer.seq), None)
                elif kind == "request_cancel_activity":
                    cancelled.add(command.request_cancel_activity.seq)
                elif kind in ("upsert_workflow_search_attributes", "modify_workflow_properties"):
                    server.apply(run, command)
    _resolve(waits, inbox)
    for (kind, seq), (task, command) in waits.items():
        if kind == "start_timer":
            server.start_timer(run, seq, _left(server, task, command))
            continue
        waits_for_cancellation = command.schedule_activity.cancellation_type == 1
        if seq not in cancelled or waits_for_cancellation:
            server.attempts.start(run, command)
        if seq in cancelled and waits_for_cancellation:
            run.activities[seq].request_cancel()


def _resolve(
    waits: dict[tuple[str, int], tuple[RecordedTask, WorkflowCommand]],
    jobs: Iterable[WorkflowActivationJob],
) -> None:
    """Remove the timers that have fired, and the activities that have a result."""
    for job in jobs:
        if job.HasField("fire_timer"):
            waits.pop(("start_timer", job.fire_timer.seq), None)
        if job.HasField("resolve_activity") and not job.resolve_activity.is_local:
            waits.pop(("schedule_activity", job.resolve_activity.seq), None)


def _left(server: "Server", task: RecordedTask, command: WorkflowCommand) -> float:
    """Return the seconds until a timer fires that began with the end of a task."""
    activation, _ = task.activations[-1]
    now = server.world.clock.now()
    begun = activation.timestamp.ToDatetime(now.tzinfo)
    due: timedelta = command.start_timer.start_to_fire_timeout.ToTimedelta()
    left: timedelta = begun + due - now
    return max(left.total_seconds(), 0.0)
