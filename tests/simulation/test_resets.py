"""Resets and retention in the simulated server: a run repeats, and is forgotten, as on Temporal."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.service import RPCError, RPCStatusCode

from tests.simulation import workers
from tests.simulation.clock import Clock, VirtualLoop, virtual_time
from tests.simulation.runs import COMPLETED, TERMINATED
from tests.simulation.world import World

NAP, RETENTION_SECONDS = timedelta(minutes=10), 3600.0
ID = "diary"


@activity.defn
async def work() -> str:
    """Take some minutes."""
    await asyncio.sleep(300)
    return "worked"


@workflow.defn(sandboxed=False)
class Diary:
    """Writes down its signals and the ends of its waits, until it is told to end."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.drawn: list[int] = []

    @workflow.run
    async def run(self, _: None) -> None:
        """Wait for a timer and an activity at the same time."""
        worked = workflow.start_activity(work, start_to_close_timeout=NAP)
        await workflow.sleep(NAP)
        self.lines.append("slept")
        self.lines.append(await worked)
        await workflow.wait_condition(lambda: "end" in self.lines)

    @workflow.signal
    def write(self, line: str) -> None:
        """Write a line, and draw a number."""
        self.lines.append(line)
        self.drawn.append(workflow.random().getrandbits(30))

    @workflow.query
    def read(self) -> dict[str, Any]:
        """Return the lines and the drawn numbers."""
        return {"lines": self.lines, "drawn": self.drawn}


def in_world(
    monkeypatch: pytest.MonkeyPatch, story: Callable[[World], Coroutine[Any, Any, Any]]
) -> Any:
    """Run a story in a world with this workflow only."""
    definition = workflow._Definition.must_from_class(Diary)
    monkeypatch.setitem(workers.DEFINITIONS, "Diary", definition)
    monkeypatch.setattr(World, "_new_worker", lambda _: [work])
    draw = random.Random(1)  # noqa: S311 - repeatable on purpose

    async def run() -> Any:
        clock = Clock(asyncio.get_running_loop())
        with virtual_time(clock, draw):
            world = World(1, 1.0, "tiny", clock)
            world.faults.end()
            world.server.retention = RETENTION_SECONDS
            await world.client.start_workflow("Diary", None, id=ID, task_queue="any")
            try:
                return await story(world)
            finally:
                world.workers.end()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(draw)) as runner:
        return runner.run(run())


async def written(world: World, *lines: str) -> dict[str, Any]:
    """Write lines, one in each minute; return the answer of the workflow after them."""
    handle = world.client.get_workflow_handle(ID)
    for line in lines:
        await asyncio.sleep(60)
        await handle.signal("write", line)
    await asyncio.sleep(1)
    found: dict[str, Any] = await handle.query("read")
    return found


@pytest.mark.parametrize("kept", range(4))
def test_a_reset_keeps_tasks_and_reads_later_signals_again(
    monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    async def story(world: World) -> None:
        before = await written(world, "a", "b", "c")
        base = world.server.find(ID)
        await world.reset(ID, kept)
        after = await written(world)
        assert after["lines"] == ["a", "b", "c"]
        of_base = random.Random(base.seed)  # noqa: S311 - repeatable on purpose
        drawn = [of_base.getrandbits(30) for _ in "abcd"]
        assert before["drawn"] == drawn[:3]
        assert (await written(world, "d"))["drawn"][3] != drawn[3], "a new run has another seed"
        run = world.server.find(ID)
        assert (base.status, run.reset_from) == (TERMINATED, (base.run_id,))
        assert (run.first_run_id, run.start_time) == (base.first_run_id, base.start_time)
        # The timer fires ten minutes after the start if the first task is kept.
        await asyncio.sleep(NAP.total_seconds() - 240)
        assert ("slept" in (await written(world))["lines"]) == (kept > 0)
        await asyncio.sleep(300)
        assert (await written(world))["lines"] == ["a", "b", "c", "d", "slept", "worked"]
        world.server.replay_all()
        await written(world, "end")
        assert world.server.find(ID).status == COMPLETED

    in_world(monkeypatch, story)


def test_a_reset_to_a_task_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> RPCStatusCode:
        await written(world, "a")
        with pytest.raises(RPCError) as refused:
            await world.reset(ID, 2)
        return refused.value.status

    assert in_world(monkeypatch, story) is RPCStatusCode.INVALID_ARGUMENT


def test_a_closed_run_is_forgotten_after_its_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        await written(world, "a")
        await world.terminate(ID)
        assert (await listed(world), await is_described(world)) == (1, True)
        await asyncio.sleep(RETENTION_SECONDS)
        assert (await listed(world), await is_described(world)) == (0, False)

    in_world(monkeypatch, story)


async def listed(world: World) -> int:
    """Return how many runs visibility lists."""
    await asyncio.sleep(60)
    return len([row async for row in world.client.list_workflows(f'WorkflowId = "{ID}"')])


async def is_described(world: World) -> bool:
    """Return whether Temporal knows a run."""
    try:
        await world.client.get_workflow_handle(ID).describe()
    except RPCError as error:
        return error.status is not RPCStatusCode.NOT_FOUND
    return True
