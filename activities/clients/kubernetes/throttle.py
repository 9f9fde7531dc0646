"""Limits per credential: request rate, concurrent requests and concurrent applies.

Hundreds of workflows of one worker may call one cluster in the same second. The API
server would return 429 and delay all other clients of the cluster, so requests queue
here instead. They do not queue for a server that responds to no request: each of them
would hold a slot of its worker, and a few hanging clusters would hold all slots.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class ServerUnresponsive(Exception):
    """The server has not responded for so long that no more requests are sent."""


class TokenBucket:
    """A token bucket: `rate` requests per second on average, `burst` at once."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._free_at = 0.0

    async def acquire(self) -> None:
        """Wait until one more request is allowed."""
        now = asyncio.get_running_loop().time()
        # Each request postpones the time at which the bucket is full again. A request
        # waits for the part of that time that exceeds the burst.
        self._free_at = max(self._free_at, now) + 1 / self._rate
        wait_seconds = self._free_at - now - self._burst / self._rate
        if wait_seconds > 0:
            await asyncio.sleep(wait_seconds)


class RequestLimit:
    """Limits concurrent requests, and rejects requests to a silent server.

    At most `at_once` requests run. After `silent_seconds` without any response, only
    one new request per `silent_seconds` is sent, and all others are rejected. A request
    that fails quickly does not count as silence: a server that refuses connections
    delays no other request.
    """

    def __init__(self, at_once: int, silent_seconds: float) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._silent_seconds = silent_seconds
        self._running = 0
        # The start of the current period without a response while requests run, or
        # None.
        self._unanswered_since: float | None = None
        self._tried_at = float("-inf")

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a slot, and hold it. Raises NoAnswer."""
        await self._acquire()
        self._running += 1
        now = _now()
        if self._unanswered_since is None:
            self._unanswered_since = now
        self._tried_at = now
        try:
            yield
        finally:
            self._running -= 1
            self._turns.release()
            if not self._running and not self._is_silent():
                self._unanswered_since = None

    def record_response(self) -> None:
        """Record that the server responds."""
        self._unanswered_since = _now() if self._running else None

    @contextlib.asynccontextmanager
    async def waiting_for(self, turns: asyncio.Semaphore) -> AsyncIterator[None]:
        """Wait for one of these slots in order, and hold it.

        Raises NoAnswer if the server falls silent during the wait.
        """
        acquired = asyncio.ensure_future(turns.acquire())
        try:
            while not acquired.done():
                if turns.locked() and self._is_silent():
                    raise ServerUnresponsive
                await asyncio.wait([acquired], timeout=self._silent_seconds)
            yield
        finally:
            acquired.cancel()
            # A task that is cancelled while it waits may have acquired its slot at that
            # moment.
            acquired.add_done_callback(
                lambda turn: None if turn.cancelled() else turns.release()
            )

    async def _acquire(self) -> None:
        while not self._is_silent():
            # The silence may be detected while a task waits for a slot. Then the wait
            # ends.
            deadline = None
            if self._unanswered_since is not None:
                deadline = self._unanswered_since + self._silent_seconds
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._turns.acquire()
                return
        if self._turns.locked() or _now() - self._tried_at < self._silent_seconds:
            raise ServerUnresponsive
        await self._turns.acquire()

    def _is_silent(self) -> bool:
        return (
            self._unanswered_since is not None
            and _now() - self._unanswered_since >= self._silent_seconds
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
