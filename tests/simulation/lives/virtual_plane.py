"""A control plane in virtual time whose activities on clusters are replaced by a test.

The product's workflows and messages run on the simulated Temporal. `SimulatedClusters`
and `SimulatedControl` imitate clusters. At the end of a test every workflow is
replayed.
"""

import asyncio
import functools
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import Success

from api_types import names
from tests.simulation.clock import Clock, VirtualLoop, virtual_time
from tests.simulation.lives.steady_fleet import SEED, waits_in_virtual_time
from tests.simulation.runs import Run, value_of
from tests.simulation.server import HISTORY_EVENTS
from tests.simulation.tasks import kind_of
from tests.simulation.world import World, logs_into
from tests.workflows.environment.harness import ControlPlane
from tests.workflows.environment.simulated_clusters import SimulatedClusters


class VirtualPlane(ControlPlane):
    """A control plane in virtual time."""

    def __init__(self, world: World) -> None:
        client: Any = world.client
        running: Any = SimpleNamespace(clusters={})
        super().__init__(client, running, None, lambda _: None)
        self.world = world

    async def activities_scheduled(self, kind: str, name: str, namespace: str = "") -> list[str]:
        """Name the activities that an object's present run scheduled, without local ones."""
        run = self._run(names.workflow_id(kind, namespace, name))
        commands = [
            command
            for task in run.recorded
            for _, answer in task.activations
            for command in Success.FromString(answer).commands
        ]
        scheduled = [each for each in commands if kind_of(each) == "schedule_activity"]
        return [each.schedule_activity.activity_type for each in scheduled]

    def signals(self, workflow_id: str, signal: str) -> list[Any]:
        """Return the payloads of a signal that a workflow's present run received."""
        run = self._run(workflow_id)
        jobs = [job for task in run.recorded for each, _ in task.activations for job in each.jobs]
        received = [job.signal_workflow for job in [*jobs, *run.inbox] if _is_signal(job, signal)]
        return [value_of(each.input[0]) for each in received]

    def timers_started(self, workflow_id: str) -> int:
        """Return how many timers a workflow's present run started."""
        tasks = self._run(workflow_id).recorded
        answers = [answer for task in tasks for _, answer in task.activations]
        commands = [each for answer in answers for each in Success.FromString(answer).commands]
        return sum(kind_of(command) == "start_timer" for command in commands)

    def start_continued(self, kind: str, workflow_id: str, state: Any) -> None:
        """Start an object with a state, as a continued run."""
        self.world.server.start_continued(kind, workflow_id, state)

    def fill(self, workflow_id: str, seconds: float) -> None:
        """Let a workflow take no signals for some time, as when its run has too many."""
        self._run(workflow_id).full_until = self.world.clock.seconds() + seconds

    def refuse(self, queue: str) -> None:
        """Let no worker poll a task queue."""
        for worker in self.world.workers.all:
            worker.refused.add(queue)

    def _run(self, workflow_id: str) -> Run:
        return self.world.server.find(workflow_id)


def _is_signal(job: WorkflowActivationJob, name: str) -> bool:
    return job.HasField("signal_workflow") and job.signal_workflow.signal_name == name


class _Staged(World):
    def __init__(self, clusters: SimulatedClusters, clock: Clock) -> None:
        self._staged = clusters.activities()
        super().__init__(SEED, 1.0, "tiny", clock)

    def _new_worker(self) -> Sequence[Callable[..., Any]]:
        return [*super()._new_worker(), *self._staged]


@asynccontextmanager
async def virtual_plane(
    clusters: SimulatedClusters | None = None,
    *,
    replays: bool = True,
) -> AsyncIterator[VirtualPlane]:
    """Open a control plane whose activities on clusters are replaced.

    `replays`: replay every workflow at the end, which takes a quarter of the time of a
    test.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "the test lacks @on_a_virtual_loop"
    clock = Clock(loop)
    with virtual_time(clock, _draw()), waits_in_virtual_time(clock):
        world = _Staged(clusters or SimulatedClusters(), clock)
        world.faults.end()
        world.server.events_max = HISTORY_EVENTS
        try:
            with logs_into(world.logs):
                async with world.watched():
                    yield VirtualPlane(world)
                    if replays:
                        world.server.replay_all()
                    else:
                        world.server.settle_all()
        finally:
            world.workers.end()


Test = Callable[..., Coroutine[Any, Any, None]]


def on_a_virtual_loop(test: Test) -> Callable[..., None]:
    """Run an asynchronous test on an event loop in virtual time."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(_draw())) as runner:
            runner.run(test(*arguments, **named))

    marked: Callable[..., None] = pytest.mark.slow(run)
    return marked


def _draw() -> random.Random:
    return random.Random(SEED)  # noqa: S311 - repeatable on purpose
