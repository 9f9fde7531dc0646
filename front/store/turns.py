"""Turns of those who write one object: Temporal lets few questions and changes of one workflow wait, and refuses more.

Each write asks for the object first. Where many do that at once, most have to ask again and again, writes that come between make what
they are told old, and none gets done. So one front makes one write of an object at a time.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from front.access.limits import TooMany
from front.store.projection import Key

WAIT_SECONDS = 20.0
"""How long a write waits for those before it."""
_AGAIN_SECONDS = 1


class Turns:
    """The turns of all objects."""

    def __init__(self) -> None:
        # Those that a write has, or waits for.
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, key: Key) -> AsyncIterator[None]:
        """Wait until nobody else writes an object. Raises `TooMany` when that takes too long: nothing was sent then."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await lock.acquire()
        except TimeoutError:
            raise TooMany(f"too many writes of {key.kind} {key.name} at once; ask again later", _AGAIN_SECONDS) from None
        try:
            yield
        finally:
            lock.release()
