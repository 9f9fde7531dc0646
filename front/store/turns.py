"""Turns of those who write one object: Temporal lets few questions and changes of one workflow wait, and refuses more.

Where many make a write of the same state at once, most have to be made again and again, each makes those that come after it old, and few
get done. So one front makes one write of an object at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from front.access.limits import TooMany
from front.store.projection import Key

WAIT_SECONDS = 25.0
"""How long a write waits for those before it: longer than one takes that gets no answer, so that it is told so with that."""
_AGAIN_SECONDS = 1


class _Turn:
    """The turn of one object. `silent`: when a write last ended without an answer; None if none has."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.silent: float | None = None


class Turns:
    """The turns of all objects."""

    def __init__(self, silence: type[Exception], behind: Callable[[], Exception]) -> None:
        """`silence`: the errors that say that nobody answers for an object; `behind`: makes that of who has waited for such a write."""
        self._silence, self._behind = silence, behind
        # Those that a write has, or waits for.
        self._turns: WeakValueDictionary[Key, _Turn] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, key: Key) -> AsyncIterator[None]:
        """Wait until nobody else writes an object. Raises `TooMany` when that takes too long: nothing was sent then.

        Who waits while another write gets no answer is told so with it, and does not wait for one as long again.
        """
        turn, clock = self._turns.setdefault(key, _Turn()), asyncio.get_running_loop().time
        begun = clock()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await turn.lock.acquire()
        except TimeoutError:
            raise TooMany(f"too many writes of {key.kind} {key.name} at once; ask again later", _AGAIN_SECONDS) from None
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
