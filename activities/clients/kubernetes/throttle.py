"""Limits for what one credential gets: how many requests per second, how many of them at once, and how many applies at once.

Hundreds of workflows of one worker may call one cluster in the same second. The API server would return 429 and delay all other clients of
the cluster; so requests queue here instead. They do not queue for a server that answers none: each of them would hold a slot of its worker,
and a few clusters that hang would hold all of them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class NoAnswer(Exception):
    """The server has answered no request for so long that no more are sent."""


class Throttle:
    """A token bucket: `rate` requests per second on average, `burst` at once."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._free_at = 0.0

    async def acquire(self) -> None:
        """Wait until one more request is allowed."""
        now = asyncio.get_running_loop().time()
        # Each request moves the time at which the bucket is full again; a request waits for what that time is ahead by more than the burst.
        self._free_at = max(self._free_at, now) + 1 / self._rate
        wait_seconds = self._free_at - now - self._burst / self._rate
        if wait_seconds > 0:
            await asyncio.sleep(wait_seconds)


class RequestLimit:
    """At most `at_once` requests, and after `silent_seconds` without any response only a new one per `silent_seconds`; others are refused.

    A request that fails soon is no silence: a server that refuses connections delays no other request.
    """

    def __init__(self, at_once: int, silent_seconds: float) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._silent_seconds = silent_seconds
        self._running = 0
        # Since when requests run and none was answered; None while nothing is known against the server.
        self._unanswered_since: float | None = None
        self._tried_at = float("-inf")

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and hold it. Raises NoAnswer."""
        await self._acquire()
        self._running += 1
        now = _now()
        self._unanswered_since = now if self._unanswered_since is None else self._unanswered_since
        self._tried_at = now
        try:
            yield
        finally:
            self._running -= 1
            self._turns.release()
            if not self._running and not self._is_silent():
                self._unanswered_since = None

    def record_response(self) -> None:
        """Record that the server answers."""
        self._unanswered_since = _now() if self._running else None

    @contextlib.asynccontextmanager
    async def waiting_for(self, turns: asyncio.Semaphore) -> AsyncIterator[None]:
        """Wait for one of these turns, first come, first served, and hold it. Raises NoAnswer when the server falls silent meanwhile."""
        acquired = asyncio.ensure_future(turns.acquire())
        try:
            while not acquired.done():
                if turns.locked() and self._is_silent():
                    raise NoAnswer
                await asyncio.wait([acquired], timeout=self._silent_seconds)
            yield
        finally:
            acquired.cancel()
            # Whoever is cancelled while it waits may have got its turn in that moment.
            acquired.add_done_callback(lambda turn: None if turn.cancelled() else turns.release())

    async def _acquire(self) -> None:
        while not self._is_silent():
            # A turn may become free when silence was noticed just now; whoever waits then must learn of it too.
            deadline = None if self._unanswered_since is None else self._unanswered_since + self._silent_seconds
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._turns.acquire()
                return
        if self._turns.locked() or _now() - self._tried_at < self._silent_seconds:
            raise NoAnswer
        await self._turns.acquire()

    def _is_silent(self) -> bool:
        return self._unanswered_since is not None and _now() - self._unanswered_since >= self._silent_seconds


def _now() -> float:
    return asyncio.get_running_loop().time()
