"""The loop in virtual time runs callbacks in the order of asyncio's own loop."""

import asyncio
import random
import selectors
from typing import Any

import pytest

from tests.simulation.clock import NothingToWaitFor, VirtualLoop

TASKS, ROUNDS = 60, 20


class _Advancing(selectors.DefaultSelector):
    """Advances the time of its loop instead of waiting."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.passed += timeout or 0.0
        return []


class _Reference(asyncio.SelectorEventLoop):
    """asyncio's own loop, in the time of its selector."""

    def __init__(self) -> None:
        self._advancing = _Advancing()
        super().__init__(self._advancing)

    def time(self) -> float:
        return self._advancing.passed


async def program(seed: int) -> list[tuple[float, int]]:
    """Run tasks that wait for equal and different times, and cancel most of their timers."""
    draw, loop, found = random.Random(seed), asyncio.get_running_loop(), []  # noqa: S311

    async def task(number: int) -> None:
        for _ in range(ROUNDS):
            await asyncio.wait_for(asyncio.sleep(draw.choice((0, 0.5, 1, draw.random()))), 500)
            found.append((loop.time(), number))

    await asyncio.gather(*(task(number) for number in range(TASKS)))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_callbacks_run_at_the_times_and_in_the_order_of_asyncio(seed: int) -> None:
    with asyncio.Runner(loop_factory=_Reference) as runner:
        expected = runner.run(program(seed))
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(random.Random(1))) as runner:  # noqa: S311
        assert runner.run(program(seed)) == expected
        timers = runner.get_loop()._scheduled  # type: ignore[attr-defined]
    assert len(expected) == TASKS * ROUNDS
    assert len(timers) <= 2 * TASKS, "cancelled timers stay in the heap"


def test_a_wait_for_nothing_is_an_error() -> None:
    with (
        asyncio.Runner(loop_factory=lambda: VirtualLoop(random.Random(1))) as runner,  # noqa: S311
        pytest.raises(NothingToWaitFor),
    ):
        runner.run(asyncio.Event().wait())
