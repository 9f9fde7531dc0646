"""Tell owners what changed: once per change, at most once a second each, the newest only.

A rollout changes a dozen things about one replica within a second, and each signal would cost its workflow a task and three events. So a
change waits a moment for its companions, and an owner that was just told waits out its second.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import datetime

from activities.cluster_objects.ownership import Owner
from activities.clusters.watch.observation_index import ObservationIndex
from api_types.clock import utc_now
from api_types.messages.observations import Observed

_SETTLE_SECONDS = 0.2
_PAUSE_SECONDS = 1.0
_AT_ONCE = 16
_RETRY_SECONDS = 2.0

# Gives False if there is nobody (any more) to tell; raises if telling failed and has to be tried again.
Send = Callable[[Owner, Observed], Awaitable[bool]]


class Undelivered(Exception):
    """A message did not reach Temporal; it is sent again."""


class ChangeNotifier:
    """The queue of owners to tell. An owner that is `held` waits; call `wake` when that may have changed."""

    def __init__(self, send: Send, held: Callable[[Owner], bool]) -> None:
        self.sent = 0
        self._held = held
        self._send = send
        self._due: dict[Owner, float] = {}
        self._told: dict[Owner, str] = {}
        self._told_at: dict[Owner, float] = {}
        self._wake = asyncio.Event()

    def touch(self, owner: Owner, after_seconds: float = _SETTLE_SECONDS) -> None:
        """Note that something changed for an owner."""
        now = asyncio.get_running_loop().time()
        at = max(now + after_seconds, self._told_at.get(owner, float("-inf")) + _PAUSE_SECONDS)
        known = self._due.get(owner)
        if known is None or at < known:
            self._due[owner] = at
            self._wake.set()

    def wake(self) -> None:
        """Look again who is held."""
        self._wake.set()

    async def run(self, board: ObservationIndex) -> None:
        """Notify owners, until cancelled."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def tell(owner: Owner) -> None:
            async with gate:
                await self._tell(board, owner)

        while True:
            now = asyncio.get_running_loop().time()
            due = [owner for owner, at in self._due.items() if at <= now and not self._held(owner)]
            for owner in due:
                del self._due[owner]
            if due:
                await asyncio.gather(*map(tell, due))
                continue
            self._wake.clear()
            next_at = min((at for owner, at in self._due.items() if not self._held(owner)), default=None)
            # Not asyncio.wait_for: before Python 3.12 it loses a cancellation that comes together with what it waits for.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_at):
                    await self._wake.wait()

    async def _tell(self, board: ObservationIndex, owner: Owner) -> None:
        note = board.note(owner, utc_now())
        if note.changes_at:
            self.touch(owner, _seconds_until(note.changes_at))
        if self._told.get(owner) == note.observed.digest:
            return
        try:
            found = await self._send(owner, note.observed)
        except Undelivered:
            self.touch(owner, _RETRY_SECONDS)
            return
        self.sent += 1
        self._told_at[owner] = asyncio.get_running_loop().time()
        if found:
            self._told[owner] = note.observed.digest
        else:
            # Whoever comes under this name later must hear the next change, even back to what is told now.
            self._told.pop(owner, None)
        if note.last:
            board.forget(owner)
            self._told.pop(owner, None)
            self._told_at.pop(owner, None)


def _seconds_until(moment: datetime) -> float:
    return max(0.0, (moment - utc_now()).total_seconds())
