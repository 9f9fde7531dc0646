"""Worker processes: their memory, and how they die.

A worker that is killed stops at the await that it has reached. Its workflows leave the cache, and
the effects of its activities stay.

The next worker continues with the instance of a workflow that was between two tasks, because a
replay would only reach the same state. `Tasks.settle` replays such a run once, at its end: that
replay compares all commands of the run, before and after each death of a worker.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio import activity, workflow
from temporalio.api.common.v1 import Payloads, SearchAttributes
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.common import Priority
from temporalio.converter import decode_search_attributes, decode_typed_search_attributes
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from fleet_client.temporal.converter import DATA_CONVERTER, PayloadConverter
from tests.simulation.runs import Run
from workflows import registry
from workflows.runner import CheckingRunner, GuardedRunner

if TYPE_CHECKING:
    from tests.simulation.world import World

CURRENT: contextvars.ContextVar["Worker | None"] = contextvars.ContextVar("worker", default=None)
"""The worker in which the code that runs now would run."""

RESTART_SECONDS = (1.0, 30.0)
DEFINITIONS = {
    definition.name: definition
    for definition in (workflow._Definition.must_from_class(each) for each in registry.WORKFLOWS)
}


class WorkerDied(BaseException):
    """The process of this code is gone; nothing it does has an effect."""


class Worker:
    """One process. `made`: its activities."""

    def __init__(self, world: "World", number: int, made: Sequence[Callable[..., Any]]) -> None:
        self.name = f"worker-{number}"
        self.alive = True
        self.refused: set[str] = set()
        """Task queues that it does not serve at the moment."""
        self._world = world
        self._runner = GuardedRunner(CheckingRunner(UnsandboxedWorkflowRunner()))
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._cache: dict[str, Run] = {}
        self.activities: dict[str, Callable[..., Any]] = {}
        for each in made:
            found = activity._Definition.must_from_callable(each)
            self.activities[str(found.name)] = each

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Run a coroutine in this process."""
        context = contextvars.copy_context()
        context.run(CURRENT.set, self)
        task = asyncio.get_running_loop().create_task(work, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, WorkerDied):
            self._world.broke(error)

    def keep(self, run: Run) -> None:
        """Keep a run in the cache."""
        self._cache[run.run_id] = run

    def evict(self, run: Run) -> None:
        """Remove a run from the cache, as the SDK does: its coroutines end without commands."""
        self._cache.pop(run.run_id, None)
        instance, run.instance, run.worker = run.instance, None, None
        run.ahead = False
        if instance is not None:
            evict(instance, run.run_id)

    def _lose(self, run: Run) -> None:
        if run.ahead:
            self.evict(run)
            return
        del self._cache[run.run_id]
        run.saved, run.instance, run.worker = run.instance, None, None

    def die(self) -> None:
        """Kill the process."""
        if not self.alive:
            return
        self.alive = False
        for task in list(self._tasks):
            task.cancel()
        for run in list(self._cache.values()):
            self._lose(run)

    def _assert_activity(self, name: str) -> None:
        if name not in self.activities:
            raise AssertionError(f"no worker has the local activity {name}")

    def new_instance(self, run: Run) -> WorkflowInstance:
        """Create an instance of a run's workflow, as the SDK's worker does."""
        attributes = SearchAttributes(indexed_fields=run.started_attributes)
        info = workflow.Info(
            attempt=1,
            continued_run_id=run.continued or None,
            cron_schedule=None,
            execution_timeout=None,
            first_execution_run_id=run.first_run_id,
            headers={},
            namespace="default",
            parent=None,
            root=None,
            raw_memo=dict(run.started_memo),
            retry_policy=None,
            run_id=run.run_id,
            run_timeout=None,
            search_attributes=decode_search_attributes(attributes),
            start_time=run.start_time,
            workflow_start_time=run.start_time,
            task_queue=run.queue,
            task_timeout=timedelta(seconds=10),
            typed_search_attributes=decode_typed_search_attributes(attributes),
            workflow_id=run.workflow_id,
            workflow_type=run.kind,
            priority=Priority.default,
        )
        return self._runner.create_instance(
            WorkflowInstanceDetails(
                payload_converter_factory=PayloadConverter,
                failure_converter_class=DATA_CONVERTER.failure_converter_class,
                interceptor_classes=[],
                defn=DEFINITIONS[run.kind],
                info=info,
                randomness_seed=run.seed,
                extern_functions={"__temporal_assert_local_activity_valid": self._assert_activity},
                disable_eager_activity_execution=True,
                worker_level_failure_exception_types=[],
                patch_activation_callback=None,
                last_completion_result=Payloads(),
                last_failure=None,
            )
        )


class Workers:
    """The worker processes of a control plane. `make` returns the activities of a new one."""

    def __init__(
        self,
        world: "World",
        draw: random.Random,
        count: int,
        make: Callable[[], Sequence[Callable[..., Any]]],
    ) -> None:
        self._world, self._draw, self._make = world, draw, make
        self._number = 0
        self.all: list[Worker] = []
        for _ in range(count):
            self._begin()

    def _begin(self) -> None:
        self._number += 1
        self.all.append(Worker(self._world, self._number, self._make()))

    def pick(self, queue: str, name: str = "") -> Worker | None:
        """Return a worker that serves a queue, or None; `name`: an activity that it must have."""
        serving = [each for each in self.all if queue not in each.refused]
        serving = [each for each in serving if not name or name in each.activities]
        return self._draw.choice(serving) if serving else None

    def kill(self, worker: Worker | None = None) -> None:
        """Kill a worker, any without one; another process takes its place some seconds later."""
        if worker is None:
            if not self.all:
                return
            worker = self._draw.choice(self.all)
        if not worker.alive:
            return
        self.all.remove(worker)
        worker.die()
        self._world.note("kill", worker.name)
        asyncio.get_running_loop().call_later(self._draw.uniform(*RESTART_SECONDS), self._begin)

    def end(self) -> None:
        """Stop all workers."""
        for worker in self.all:
            worker.die()
        self.all.clear()
        for execution in self._world.server.executions.values():
            for run in execution.runs:
                release(run)


def outside_loop(call: Callable[[], Any]) -> Any:
    """Call the workflow runner, which has an event loop of its own, from within a coroutine."""
    loop = asyncio.get_running_loop()
    asyncio._set_running_loop(None)
    try:
        return contextvars.Context().run(call)
    finally:
        asyncio._set_running_loop(loop)


def release(run: Run) -> None:
    """End the instance of a worker that died."""
    instance, run.saved = run.saved, None
    if instance is not None:
        evict(instance, run.run_id)


def evict(instance: WorkflowInstance, run_id: str) -> None:
    """End the coroutines of a workflow."""
    activation = WorkflowActivation(run_id=run_id, is_replaying=True)
    activation.jobs.add().remove_from_cache.SetInParent()
    outside_loop(lambda: instance.activate(activation))
