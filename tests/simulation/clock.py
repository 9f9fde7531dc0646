"""The time of a simulation, which passes only while all tasks wait.

A monotonic clock drives timers and timeouts. Workflows and activities read a separate
wall clock, which a fault can step in either direction.
"""

import asyncio
import contextlib
import contextvars
import heapq
import random
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Self, TypeVar
from unittest.mock import patch

from api_types import clock as product_clock

ResultT = TypeVar("ResultT")

START = datetime(2026, 11, 1, tzinfo=UTC)
_THREAD_SECONDS = (0.05, 2.0)
"""The seconds that a call in a thread takes."""
_RESOLUTION_SECONDS = time.get_clock_info("monotonic").resolution
_WAIT_SECONDS_MAX = 86_400.0
# Above both limits the cancelled timers are removed from the heap.
_TIMERS_MIN, _CANCELLED_SHARE_MAX = 100, 0.5


class NothingToWaitFor(Exception):
    """Raised when all tasks wait for an event that never happens."""


class _Timer(asyncio.TimerHandle):
    __slots__ = ()

    def __lt__(self, other: Any) -> bool:
        # The base class also compares with other types, in half of the time of a heap.
        return self._when < other._when  # type: ignore[attr-defined,no-any-return]


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, which passes instead of a wait.

    A call for a thread runs at once; its result arrives later.
    """

    _ready: deque[asyncio.Handle]
    _scheduled: list[Any]
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(self, draw: random.Random) -> None:
        self._passed = 0.0
        self._draw = draw
        self.slow = 1.0
        super().__init__()

    def time(self) -> float:
        """Return the seconds since the start."""
        return self._passed

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Call a function at a time."""
        timer: Any = _Timer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        found: asyncio.TimerHandle = timer
        return found

    def _run_once(self) -> None:
        # The base class does the same, but waits for files, and measures slow callbacks.
        self._forget_cancelled()
        ready, timers = self._ready, self._scheduled
        if not ready and not self._stopping:
            if not timers:
                raise NothingToWaitFor
            self._passed += min(max(timers[0]._when - self._passed, 0.0), _WAIT_SECONDS_MAX)
        due = self._passed + _RESOLUTION_SECONDS
        while timers and timers[0]._when < due:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle: Any = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _forget_cancelled(self) -> None:
        timers, cancelled = self._scheduled, self._timer_cancelled_count
        if len(timers) > _TIMERS_MIN and cancelled > _CANCELLED_SHARE_MAX * len(timers):
            for timer in timers:
                timer._scheduled = not timer._cancelled
            self._scheduled = [timer for timer in timers if not timer._cancelled]
            heapq.heapify(self._scheduled)
            self._timer_cancelled_count = 0
            return
        while timers and timers[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(timers)._scheduled = False

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
        self._latest = START

    def seconds(self) -> float:
        """Return the seconds since the start, which no clock step changes."""
        return self._loop.time()

    def now(self) -> datetime:
        """Return the wall clock's time."""
        return START + timedelta(seconds=self._loop.time() + self._offset)

    def step(self, seconds: float) -> None:
        """Move the wall clock forwards, or backwards."""
        self._latest = max(self._latest, self.now())
        self._offset += seconds

    def has_caught_up(self) -> bool:
        """Return whether the wall clock was never later than it is now."""
        return self.now() >= self._latest


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
