"""Signal owners what changed: once per change, at most once a second each, only the newest observation.

A rollout changes a dozen objects of one replica within a second, and each signal would cost its workflow a task and three events. So
changes are batched for a moment, and an owner that was just signalled waits until its second is over.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Generic, Protocol, TypeVar

from activities.cluster_objects.ownership import Owner
from api_types.base import Message
from api_types.clock import utc_now

_BATCH_SECONDS = 0.2
_INTERVAL_SECONDS = 1.0
_CONCURRENT_MAX = 16
_RETRY_SECONDS = 2.0
# A workflow that was terminated is started again after seconds, or when people notice.
_ABSENT_SECONDS, _ABSENT_SECONDS_MAX = 30.0, 3600.0

MessageT = TypeVar("MessageT", bound=Message)
MessageT_co = TypeVar("MessageT_co", bound=Message, covariant=True)

# Gives False if no such workflow is running; raises Undelivered if the signal has to be sent again.
Send = Callable[[Owner, MessageT], Awaitable[bool]]


class Pending(Protocol[MessageT_co]):
    """What an owner should know now."""

    @property
    def digest(self) -> str:
        """A digest over the content: the same again is not sent."""

    @property
    def changes_at(self) -> datetime | None:
        """When time alone would change it; None: never."""

    @property
    def last(self) -> bool:
        """Whether the owner has no objects here any more."""

    def numbered(self, sequence: int) -> MessageT_co:
        """Give the message with its place in the order of those of this watch."""


class Index(Protocol[MessageT_co]):
    """Who should know what."""

    def observation_for(self, owner: Owner, now: datetime) -> Pending[MessageT_co]:
        """Give what an owner should know now."""

    def forget(self, owner: Owner) -> None:
        """Drop an owner that has no objects here any more."""


class Undelivered(Exception):
    """A signal did not reach Temporal; it is sent again."""


class ChangeNotifier(Generic[MessageT]):
    """The queue of owners to signal. An owner for whom `is_blocked` holds waits; call `wake` when that may have changed."""

    def __init__(self, send: Send[MessageT], is_blocked: Callable[[Owner], bool]) -> None:
        self.sent = 0
        self._sequence = 0
        self._is_blocked = is_blocked
        self._send = send
        self._due: dict[Owner, float] = {}
        self._sent_digests: dict[Owner, str] = {}
        # How often in a row the workflow of an owner was not running.
        self._absences: dict[Owner, int] = {}
        # By workflow: objects with another uid, of an earlier owner or made up by the cluster, are of another owner with the same one.
        self._sent_at: dict[str, float] = {}
        # The signals that are on their way, by workflow.
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._failed: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    def enqueue(self, owner: Owner, after_seconds: float = _BATCH_SECONDS) -> None:
        """Queue an owner for whom something changed."""
        at = asyncio.get_running_loop().time() + after_seconds
        known = self._due.get(owner)
        if known is None or at < known:
            self._due[owner] = at
            self._wake.set()

    def repeat(self, workflow_id: str) -> None:
        """Send the newest observation again to the owners with this workflow.

        Its last run was closed, and the next one does not have the observation.
        """
        for owner in [each for each in self._sent_digests if each.workflow_id == workflow_id]:
            del self._sent_digests[owner]
            self.enqueue(owner)

    def wake(self) -> None:
        """Check again who is blocked."""
        self._wake.set()

    async def run(self, index: Index[MessageT]) -> None:
        """Notify owners, until cancelled. An owner whose signal takes long delays no other owner."""
        try:
            await self._run(index)
        finally:
            sending = list(self._sending.values())
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    async def _run(self, index: Index[MessageT]) -> None:
        limit = asyncio.Semaphore(_CONCURRENT_MAX)

        async def send(owner: Owner) -> None:
            async with limit:
                await self._send_newest(index, owner)

        while True:
            now = asyncio.get_running_loop().time()
            self._wake.clear()
            if self._failed is not None:
                self._failed.result()
            due: dict[str, Owner] = {}
            for owner in self._due:
                if self._due_at(owner) <= now and self._is_free(owner):
                    due.setdefault(owner.workflow_id, owner)
            for owner in due.values():
                del self._due[owner]
                task = self._sending[owner.workflow_id] = asyncio.create_task(send(owner))
                task.add_done_callback(partial(self._sent, owner.workflow_id))
            self._sent_at = {each: at for each, at in self._sent_at.items() if at + _INTERVAL_SECONDS > now}
            next_at = min((self._due_at(owner) for owner in self._due if self._is_free(owner)), default=None)
            # Not asyncio.wait_for: before Python 3.12 it loses a cancellation that arrives together with what it waits for.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_at):
                    await self._wake.wait()

    def _sent(self, workflow_id: str, task: "asyncio.Task[None]") -> None:
        del self._sending[workflow_id]
        is_failed = not task.cancelled() and task.exception() is not None
        if is_failed:
            self._failed = task
        if is_failed or any(owner.workflow_id == workflow_id for owner in self._due):
            self._wake.set()

    def _is_free(self, owner: Owner) -> bool:
        """Whether an owner may be signalled: it is not blocked, and no signal to its workflow is on its way."""
        return not self._is_blocked(owner) and owner.workflow_id not in self._sending

    def _due_at(self, owner: Owner) -> float:
        # Not decided when the owner is queued: a signal to it may be on its way then, and its second begins when that has arrived.
        return max(self._due[owner], self._sent_at.get(owner.workflow_id, float("-inf")) + _INTERVAL_SECONDS)

    async def _send_newest(self, index: Index[MessageT], owner: Owner) -> None:
        pending = index.observation_for(owner, utc_now())
        if pending.changes_at:
            self.enqueue(owner, _seconds_until(pending.changes_at))
        if self._sent_digests.get(owner) == pending.digest:
            return
        # A signal that seemed lost may arrive after the next one.
        self._sequence += 1
        try:
            found = await self._send(owner, pending.numbered(self._sequence))
        except Undelivered:
            self.enqueue(owner, _RETRY_SECONDS)
            return
        self.sent += 1
        self._sent_at[owner.workflow_id] = asyncio.get_running_loop().time()
        if found:
            self._sent_digests[owner] = pending.digest
            self._absences.pop(owner, None)
        else:
            self._sent_digests.pop(owner, None)
        if pending.last:
            index.forget(owner)
            self._sent_digests.pop(owner, None)
            self._absences.pop(owner, None)
        elif not found:
            self._await(owner)

    def _await(self, owner: Owner) -> None:
        """Signal an owner later whose workflow does not run: its objects may never change again."""
        absences = self._absences.get(owner, 0)
        self._absences[owner] = absences + 1
        pause = _ABSENT_SECONDS * 2.0 ** min(absences, 10)
        self.enqueue(owner, min(pause, _ABSENT_SECONDS_MAX))


def _seconds_until(moment: datetime) -> float:
    return max(0.0, (moment - utc_now()).total_seconds())
