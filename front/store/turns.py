"""Serializes the writes of each object in one front.

Temporal queues few updates and queries per workflow and rejects more. Of several
concurrent writes based on the same state, all but one would fail and have to be
repeated.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from front.access.limits import TooMany
from front.store.projection import ObjectKey

WAIT_SECONDS = 25.0
"""The time limit for waiting.

It is longer than a write without an answer takes, so that waiting writes fail together
with that write.
"""
_AGAIN_SECONDS = 1


class _Turn:
    """The lock of one object.

    `silent` is the time at which a write last ended unanswered.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.silent: float | None = None


class WriteTurns:
    """The turns of all objects."""

    def __init__(
        self, silence: type[Exception], behind: Callable[[], Exception]
    ) -> None:
        """Set the errors of an unanswered write and of the writes behind it."""
        self._silence, self._behind = silence, behind
        # The turns that are in use.
        self._turns: WeakValueDictionary[ObjectKey, _Turn] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, key: ObjectKey) -> AsyncIterator[None]:
        """Wait for exclusive access to an object.

        Raises `TooMany` after the time limit. Nothing was sent then. If the current
        write ends unanswered, the writes that wait for it fail too, instead of waiting
        as long again.
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
                raise self._behind()
            try:
                yield
            except self._silence:
                turn.silent = clock()
                raise
        finally:
            turn.lock.release()
