"""Workflow tasks of the simulated server, where they differ from one activation at a time."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity, workflow

from tests.simulation import tasks, workers
from tests.simulation.clock import Clock, VirtualLoop, virtual_time
from tests.simulation.runs import COMPLETED, RUNNING, TERMINATED
from tests.simulation.tasks import Nondeterminism
from tests.simulation.world import World

ID = "waiting"
SLOW = timedelta(seconds=20)
"""Longer than a worker waits before it completes its task without the result."""


@activity.defn
async def slow() -> int:
    """Return the number of the attempt, after a while."""
    await asyncio.sleep(SLOW.total_seconds())
    return activity.info().attempt


@workflow.defn(sandboxed=False)
class Waiting:
    """Wait for one local activity."""

    @workflow.run
    async def run(self, _: None) -> int:
        """Return the result of the activity."""
        return await workflow.execute_local_activity(slow, start_to_close_timeout=2 * SLOW)


@workflow.defn(sandboxed=False)
class Counting:
    """Sleep as many minutes as there were instances before, so a replay decides otherwise."""

    instances, hours = 0, 1

    @workflow.run
    async def run(self, _: None) -> None:
        """Sleep twice."""
        Counting.instances += 1
        await workflow.sleep(timedelta(minutes=Counting.instances))
        await workflow.sleep(timedelta(hours=Counting.hours))


@workflow.defn(sandboxed=False)
class Endless:
    """Work without a pause, as a reconcile loop does whose passes queue one another."""

    @workflow.run
    async def run(self, _: None) -> None:
        """Never wait."""
        queued = True
        while queued:
            await workflow.wait_condition(lambda: queued)


Story = Callable[[World], Coroutine[Any, Any, Any]]


def in_world(monkeypatch: pytest.MonkeyPatch, kind: type, story: Story) -> Any:
    """Run a story in a world with a workflow of this kind only."""
    definition = workflow._Definition.must_from_class(kind)
    monkeypatch.setitem(workers.DEFINITIONS, kind.__name__, definition)
    monkeypatch.setattr(World, "_new_worker", lambda _: [slow])
    draw = random.Random(1)  # noqa: S311 - repeatable on purpose

    async def run() -> Any:
        clock = Clock(asyncio.get_running_loop())
        with virtual_time(clock, draw):
            world = World(1, 1.0, "tiny", clock)
            world.faults.end()
            await world.client.start_workflow(kind.__name__, None, id=ID, task_queue="any")
            try:
                async with world.watched():
                    return await story(world)
            finally:
                world.workers.end()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(draw)) as runner:
        return runner.run(run())


async def outlived(world: World, seconds: float) -> None:
    """Let the worker of the workflow die after some seconds, and wait for an hour and a half."""
    await asyncio.sleep(seconds)
    world.workers.kill(world.server.find(ID).worker)
    await asyncio.sleep(5400)


def test_a_local_activity_starts_again_when_its_worker_dies_after_a_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> str:
        await outlived(world, SLOW.total_seconds() / 2)
        return world.server.find(ID).status

    assert in_world(monkeypatch, Waiting, story) == COMPLETED


def test_a_task_that_does_not_end_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_PROCESSOR_SECONDS", 0.2)
    with pytest.raises(AssertionError, match=f"task of {ID}: it needs more than 0.2 s"):
        in_world(monkeypatch, Endless, lambda _: asyncio.sleep(60))


async def completed(world: World) -> None:
    """Wait until the workflow has ended by itself."""
    await outlived(world, 30)
    assert world.server.find(ID).status == COMPLETED


async def terminated(world: World) -> None:
    """Terminate the workflow after a task of another worker."""
    await outlived(world, 30)
    await world.terminate(ID)
    assert world.server.find(ID).status == TERMINATED


async def running(world: World) -> None:
    """End the world while the workflow runs."""
    await outlived(world, 30)
    assert world.server.find(ID).status == RUNNING
    world.server.settle_all()


@pytest.mark.parametrize("end", [completed, terminated, running])
def test_a_run_that_outlived_its_worker_is_replayed_at_its_end(
    monkeypatch: pytest.MonkeyPatch, end: Story
) -> None:
    hours = 1 if end is completed else 2
    monkeypatch.setattr(Counting, "hours", hours)
    monkeypatch.setattr(Counting, "instances", 0)
    with pytest.raises(Nondeterminism, match=f"task 1 of {ID}"):
        in_world(monkeypatch, Counting, end)
