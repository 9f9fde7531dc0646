"""Workflow tasks of the simulated server, where they differ from one activation at a time."""

import asyncio
import random
from datetime import timedelta

import pytest
from temporalio import activity, workflow

from tests.simulation import workers
from tests.simulation.clock import Clock, VirtualLoop, virtual_time
from tests.simulation.runs import COMPLETED
from tests.simulation.world import World

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


def test_a_local_activity_starts_again_when_its_worker_dies_after_a_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    definition = workflow._Definition.must_from_class(Waiting)
    monkeypatch.setitem(workers.DEFINITIONS, "Waiting", definition)
    monkeypatch.setattr(World, "_new_worker", lambda _: [slow])
    draw = random.Random(1)  # noqa: S311 - repeatable on purpose

    async def run() -> str:
        clock = Clock(asyncio.get_running_loop())
        with virtual_time(clock, draw):
            world = World(1, 1.0, "tiny", clock)
            world.faults.end()
            await world.client.start_workflow("Waiting", None, id="waiting", task_queue="any")
            await asyncio.sleep(SLOW.total_seconds() / 2)
            world.workers.kill(world.server.find("waiting").worker)
            await asyncio.sleep(3600)
            status = world.server.find("waiting").status
            world.workers.end()
            return status

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(draw)) as runner:
        assert runner.run(run()) == COMPLETED
