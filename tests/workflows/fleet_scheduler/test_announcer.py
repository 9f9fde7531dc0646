"""An announcement runs besides the decisions, and is repeated if it did not complete."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow

from api_types.messages.delivery import Broadcast
from workflows.fleet_scheduler import calls
from workflows.fleet_scheduler.cache.state import SchedulerState
from workflows.fleet_scheduler.calls import Announcer
from workflows.fleet_scheduler.orders import Announce

ORDER = Announce(Broadcast(kinds=["ModelDeployment"], signal="resync"), "announce")
MIB = 1024 * 1024


class Run:
    """A run whose broadcasts end when the test ends them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = SchedulerState(epoch=7, announced=7)
        self.announcer = Announcer(self.state)
        self.events, self.bytes = 100, MIB
        self.broadcasts: list[asyncio.Future[None]] = []
        info = SimpleNamespace(
            get_current_history_length=lambda: self.events,
            get_current_history_size=lambda: self.bytes,
        )
        monkeypatch.setattr(workflow, "info", lambda: info)
        monkeypatch.setattr(calls, "broadcast", self.broadcast)

    async def broadcast(self, *_: Any) -> None:
        self.broadcasts.append(asyncio.get_running_loop().create_future())
        await self.broadcasts[-1]

    async def begin(self) -> None:
        await self.announcer.begin(ORDER)
        await asyncio.sleep(0)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch)


async def test_decisions_continue_and_the_run_waits_for_the_end(run: Run) -> None:
    await run.begin()
    assert run.announcer.is_busy
    run.broadcasts[0].set_result(None)
    await asyncio.sleep(0.01)
    assert not run.announcer.is_busy
    run.announcer.stop()
    assert run.state.announced == 7


@pytest.mark.parametrize(("events", "size"), [(8_000, MIB), (100, 16 * MIB)])
async def test_a_full_run_does_not_wait_and_the_next_one_repeats_the_announcement(
    run: Run, events: int, size: int
) -> None:
    await run.begin()
    run.events, run.bytes = events, size
    assert not run.announcer.is_busy
    run.announcer.stop()
    assert run.state.announced == 0


async def test_a_failed_announcement_is_repeated(run: Run) -> None:
    await run.begin()
    run.broadcasts[0].set_exception(ValueError("a bug"))
    await asyncio.sleep(0.01)
    assert run.state.announced == 0


async def test_a_newer_announcement_replaces_one_that_fails_later(
    run: Run,
) -> None:
    await run.begin()
    await run.begin()
    await asyncio.sleep(0.01)
    assert run.broadcasts[0].cancelled()
    assert (run.announcer.is_busy, run.state.announced) == (True, 7)
    run.announcer.stop()
