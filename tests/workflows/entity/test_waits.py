"""Background waits of an entity: timers, other entities, and cancelled work.

These tests need no server.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.entity.context import EntityContext
from workflows.entity.registering import awaiting
from workflows.entity.registering.awaiting import AwaitedEntities
from workflows.entity.state import EntityState
from workflows.entity.timers.requeue_timer import RequeueTimer
from workflows.entity.timers.steady_time import SteadyTime

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def after(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


async def settle() -> None:
    """Let all tasks run as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


def a_context(**state: Any) -> EntityContext[EntityState]:
    made = EntityContext("X", EntityState(**state), lambda: None, "x/ml/a", lambda: NOW)
    made.queued = False
    return made


# The timer of the next pass


class Sleeps:
    """The durations of started timers, in seconds. A test fires a timer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[float] = []
        self.cancelled: list[float] = []
        self._fire = asyncio.Event()
        monkeypatch.setattr(workflow, "sleep", self._sleep)
        monkeypatch.setattr(workflow, "time", NOW.timestamp)
        monkeypatch.setattr(workflow, "now", lambda: NOW)

    async def _sleep(self, duration: timedelta, *, summary: str) -> None:
        assert summary == "look again"
        self.started.append(duration.total_seconds())
        try:
            await self._fire.wait()
        except asyncio.CancelledError:
            self.cancelled.append(duration.total_seconds())
            raise

    async def fire(self) -> None:
        """Fire the running timer."""
        self._fire.set()
        await settle()
        self._fire.clear()


@pytest.mark.parametrize(
    ("wanted", "started", "cancelled"),
    [
        ([5], [5], []),
        ([None], [], []),
        ([5, 5], [5], []),
        ([5, 9], [5], []),
        ([9, 5], [9, 5], [9]),
        ([5, None], [5], [5]),
        ([5, None, 5], [5, 5], [5]),
        ([-5], [0], []),
    ],
    ids=[
        "one pass",
        "none",
        "the same time again",
        "a later one",
        "an earlier one",
        "none any more",
        "again after none",
        "a late timer",
    ],
)
async def test_a_timer_that_fires_early_enough_is_kept(
    monkeypatch: pytest.MonkeyPatch,
    wanted: list[int | None],
    started: list[float],
    cancelled: list[float],
) -> None:
    sleeps = Sleeps(monkeypatch)
    timer = RequeueTimer("look again", lambda: None, SteadyTime(""))
    for seconds in wanted:
        timer.update(None if seconds is None else after(seconds))
        await settle()
    assert (sleeps.started, sleeps.cancelled) == (started, cancelled)
    timer.cancel()


async def test_a_timer_fires_once_and_can_be_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleeps, passes = Sleeps(monkeypatch), list[str]()
    timer = RequeueTimer("look again", lambda: passes.append("pass"), SteadyTime(""))
    for _ in range(2):
        timer.update(after(5))
        await settle()
        await sleeps.fire()
    assert (passes, len(sleeps.started), sleeps.cancelled) == (["pass", "pass"], 2, [])


# Entities that do not run


class Awaited:
    """The awaited entities. A test lets an entity start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        monkeypatch.setattr(workflow, "execute_activity_method", self._wait)

        async def once(call: Callable[[], Awaitable[None]], _: str) -> None:
            await call()

        monkeypatch.setattr(awaiting, "until_accepted", once)

    async def _wait(self, _: Any, wanted: Any, **__: Any) -> None:
        self.asked.append(wanted.workflow_id)
        await self._ends.setdefault(wanted.workflow_id, asyncio.Event()).wait()

    async def runs(self, workflow_id: str) -> None:
        self._ends[workflow_id].set()
        await settle()


async def test_a_wait_for_an_entity_runs_once_until_the_entity_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    awaited, context = Awaited(monkeypatch), a_context()
    entities = AwaitedEntities(context)
    for workflow_id in ("a", "b", "a"):
        entities.wait_for(workflow_id)
        await settle()
    assert (awaited.asked, context.queued) == (["a", "b"], False)
    await awaited.runs("a")
    assert ("a" in entities, "b" in entities, context.queued) == (False, True, True)
    entities.wait_for("a")
    await settle()
    assert awaited.asked == ["a", "b", "a"]
    for stop in context.on_end:
        stop()
    assert ("a" in entities, "b" in entities) == (False, False)


async def test_only_retained_waits_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    awaited, context = Awaited(monkeypatch), a_context()
    entities = AwaitedEntities(context)
    for workflow_id in ("a", "b", "c"):
        entities.wait_for(workflow_id)
    await settle()
    entities.keep(["b"])
    entities.stop("unknown")
    await settle()
    assert [each for each in ("a", "b", "c") if each in entities] == ["b"]
    assert not context.queued
    entities.stop("b")
    await settle()
    assert (awaited.asked, "b" in entities, context.queued) == (
        ["a", "b", "c"],
        False,
        False,
    )


# Work that may become pointless


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll conditions. A condition with a time limit is polled a few times."""

    async def wait_condition(holds: Callable[[], bool], **options: Any) -> None:
        for turn in range(1_000):
            if holds():
                return
            if options.get("timeout") is not None and turn > 5:
                raise TimeoutError
            await asyncio.sleep(0)
        raise AssertionError("it would wait for ever")

    monkeypatch.setattr(workflow, "wait_condition", wait_condition)


class Work:
    """Work that takes some event loop turns, and some more to end when it is cancelled."""

    def __init__(
        self, turns: int, turns_to_end: int = 0, *, error: bool = False
    ) -> None:
        self.turns, self.turns_to_end, self.error, self.ended = (
            turns,
            turns_to_end,
            error,
            False,
        )

    async def run(self) -> str:
        try:
            for _ in range(self.turns):
                await asyncio.sleep(0)
            if self.error:
                raise ApplicationError("it failed")
        except asyncio.CancelledError:
            for _ in range(self.turns_to_end):
                await asyncio.sleep(0)
            if self.error:
                raise ApplicationError("it failed at the end") from None
            self.ended = True
            raise
        self.ended = True
        return "the result"


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize(
    ("work", "stops_at", "forced", "result", "ended"),
    [
        (Work(3), None, "", "the result", True),
        (Work(500), 0, "", None, False),
        (Work(500), 3, "", None, True),
        (Work(500, 20), 3, "", None, True),
        (Work(500, 20), 3, "all", None, False),
        (Work(500, 2), 3, "all", None, True),
        (Work(500, 2, error=True), 3, "", None, False),
    ],
    ids=[
        "it ends",
        "it is cancelled before it starts",
        "it is stopped",
        "it takes a while to stop",
        "a forced cancellation does not wait for that",
        "it stops in time for a forced cancellation",
        "it fails when it is stopped",
    ],
)
async def test_work_returns_its_result_unless_it_is_cancelled(
    *, work: Work, stops_at: int | None, forced: str, result: str | None, ended: bool
) -> None:
    turns = itertools.count()
    stop = (lambda: False) if stops_at is None else (lambda: next(turns) >= stops_at)
    assert await a_context(forced=forced).run_until(stop, work.run()) == result
    assert work.ended == ended
    await settle()


@pytest.mark.usefixtures("waits")
async def test_work_that_fails_raises_its_error() -> None:
    with pytest.raises(ApplicationError, match="it failed"):
        await a_context().run_until(lambda: False, Work(2, error=True).run())
