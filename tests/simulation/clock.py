"""The time of a simulation, which passes only while all tasks wait.

A monotonic clock drives timers and timeouts. Workflows and activities read a separate
wall clock, which a fault can step in either direction.
"""

import asyncio
import contextlib
import contextvars
import random
import selectors
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Self, TypeVar
from unittest.mock import patch

from api_types import clock as product_clock

ResultT = TypeVar("ResultT")

START = datetime(2026, 11, 1, tzinfo=UTC)
_THREAD_SECONDS = (0.05, 2.0)
"""The seconds that a call in a thread takes."""


class NothingToWaitFor(Exception):
    """Raised when all tasks wait for an event that never happens."""


class _Selector(selectors.DefaultSelector):
    """Advances the time of its loop instead of waiting."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise NothingToWaitFor
        self.passed += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time.

    A call for a thread runs at once; its result arrives later.
    """

    def __init__(self, draw: random.Random) -> None:
        self._virtual = _Selector()
        self._draw = draw
        self.slow = 1.0
        super().__init__(self._virtual)

    def time(self) -> float:
        """Return the seconds since the start."""
        return self._virtual.passed

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., ResultT], *args: Any
    ) -> "asyncio.Future[ResultT]":
        """Call the function now.

        As in a thread, its effect remains if the caller is cancelled.
        """
        del executor
        future: asyncio.Future[ResultT] = self.create_future()
        try:
            result = contextvars.copy_context().run(func, *args)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            self.call_later(self._latency(), _fail, future, error)
        else:
            self.call_later(self._latency(), _finish, future, result)
        return future

    def _latency(self) -> float:
        return self._draw.uniform(*_THREAD_SECONDS) * self.slow


def _finish(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class Clock:
    """The two clocks of a simulation, above the loop that runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._offset = 0.0

    def seconds(self) -> float:
        """Return the seconds since the start, which no clock step changes."""
        return self._loop.time()

    def now(self) -> datetime:
        """Return the wall clock's time."""
        return START + timedelta(seconds=self._loop.time() + self._offset)

    def step(self, seconds: float) -> None:
        """Move the wall clock forwards, or backwards."""
        self._offset += seconds


@contextlib.contextmanager
def virtual_time(clock: Clock, draw: random.Random) -> Iterator[None]:
    """Let all code of this process read these clocks, and derive its UUIDs from the
    seed.
    """

    class VirtualDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            found: Any = clock.now().astimezone(tz)
            return found  # type: ignore[no-any-return]

    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (product_clock, "datetime", VirtualDatetime),
            (time, "monotonic", clock.seconds),
            (time, "time", lambda: clock.now().timestamp()),
            # A thread of its own would block, so a call for a thread runs in the
            # current one.
            (time, "sleep", lambda _seconds: None),
            (uuid, "uuid4", lambda: uuid.UUID(int=draw.getrandbits(128), version=4)),
        ):
            stack.enter_context(patch.object(owner, name, value))
        yield
