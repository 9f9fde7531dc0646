"""Serializes the writes of each object in one front, and repeats conflicting writes.

Temporal queues few updates and queries per workflow and rejects more. Of several
concurrent writes based on the same state, all but one would fail and have to be
repeated.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

from front.access.limits import TooMany
from front.serving import errors
from front.store.projection import ObjectKey

WAIT_SECONDS = 25.0
"""The time limit for waiting.

It is longer than a write without an answer takes, so that waiting writes fail together
with that write.
"""
_AGAIN_SECONDS = 1
# The time in which a write is repeated because the object changed between read and
# write, and the pauses between attempts.
_REPEATED_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 0.02
_PAUSE_SECONDS_MAX = 0.5
_RANDOM = secrets.SystemRandom()
ResultT = TypeVar("ResultT")


class _Turn:
    """The lock of one object.

    `silent` is the time at which a write last ended unanswered.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.silent: float | None = None


class WriteTurns:
    """The turns of all objects."""

    def __init__(self) -> None:
        # The turns that are in use.
        self._turns: WeakValueDictionary[ObjectKey, _Turn] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, key: ObjectKey) -> AsyncIterator[None]:
        """Wait for exclusive access to an object.

        Raises `TooMany` after the time limit. Nothing was sent then. If the current
        write ends with `Silent`, the writes that wait for it fail too, instead of
        waiting as long again.
        """
        turn = self._turns.setdefault(key, _Turn())
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await turn.lock.acquire()
        except TimeoutError:
            raise TooMany(
                f"too many concurrent writes of {key.kind} {key.name}; try again later",
                _AGAIN_SECONDS,
            ) from None
        try:
            if turn.silent is not None and turn.silent >= begun:
                raise errors.silent(
                    "no worker answers: an earlier write of this object got no answer, "
                    "and this one was not sent; try again"
                )
            try:
                yield
            except errors.Silent:
                turn.silent = clock()
                raise
        finally:
            turn.lock.release()


async def repeated(
    attempt: Callable[[], Awaitable[ResultT]], reasons: tuple[str, ...] = ()
) -> ResultT:
    """Repeat reading and writing until the object does not change in between.

    Errors with one of `reasons` may also come from such a change. The pauses are
    random, so that several writers of one object all make progress. Raises
    `RejectedRequest`.
    """
    clock, pause = asyncio.get_running_loop().time, _FIRST_PAUSE_SECONDS
    end = clock() + _REPEATED_SECONDS
    while True:
        try:
            return await attempt()
        except errors.RejectedRequest as refusal:
            may_succeed = (
                isinstance(refusal, errors.Stale) or refusal.status["reason"] in reasons
            )
            if not may_succeed or clock() + pause > end:
                raise
        await asyncio.sleep(pause * _RANDOM.random())
        pause = min(2 * pause, _PAUSE_SECONDS_MAX)
