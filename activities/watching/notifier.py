"""Signal changes to owners: once per change, at most once per second and owner.

Only the newest observation is sent. A rollout changes a dozen objects of one replica
within a second, and each signal would cost its workflow a task and three events. So
changes are batched briefly, and an owner that was just signalled waits for the rest of
its second.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Generic, Protocol, TypeVar

from activities.cluster_objects.ownership import ObjectOwner
from api_types.base import Message
from api_types.clock import utc_now

_BATCH_SECONDS = 0.2
_INTERVAL_SECONDS = 1.0
_CONCURRENT_MAX = 16
_RETRY_SECONDS = 2.0
# A terminated workflow is started again after seconds, or when an operator notices.
_ABSENT_SECONDS, _ABSENT_SECONDS_MAX = 30.0, 3600.0

MessageT = TypeVar("MessageT", bound=Message)
MessageT_co = TypeVar("MessageT_co", bound=Message, covariant=True)

# Returns False if the workflow does not run. Raises Undelivered if the signal must be
# sent again.
Send = Callable[[ObjectOwner, MessageT], Awaitable[bool]]


class Pending(Protocol[MessageT_co]):
    """The current observation for an owner."""

    @property
    def digest(self) -> str:
        """A digest of the content. An equal observation is not sent again."""

    @property
    def changes_at(self) -> datetime | None:
        """The time at which the observation changes by itself; None: never."""

    @property
    def last(self) -> bool:
        """True if the owner has no objects any more."""

    def numbered(self, sequence: int) -> MessageT_co:
        """Return the message with its sequence number among the messages of this watch."""


class Index(Protocol[MessageT_co]):
    """The observations of all owners."""

    def observation_for(
        self, owner: ObjectOwner, now: datetime
    ) -> Pending[MessageT_co]:
        pass

    def forget(self, owner: ObjectOwner) -> None:
        """Delete an owner that has no objects any more."""


class Undelivered(Exception):
    """A signal did not reach Temporal. It is sent again."""


class ChangeNotifier(Generic[MessageT]):
    """The queue of owners to signal.

    An owner waits while `is_blocked` is true for it. Call `wake` when that may have
    changed.
    """

    def __init__(
        self, send: Send[MessageT], is_blocked: Callable[[ObjectOwner], bool]
    ) -> None:
        self.sent = 0
        self._sequence = 0
        self._is_blocked = is_blocked
        self._send = send
        self._due: dict[ObjectOwner, float] = {}
        self._sent_digests: dict[ObjectOwner, str] = {}
        # How often in a row the workflow of an owner did not run.
        self._absences: dict[ObjectOwner, int] = {}
        # Grouped by workflow, because objects with another uid, from an earlier owner
        # or invented by the cluster, belong to another owner with the same workflow.
        self._sent_at: dict[str, float] = {}
        # The signals in flight, by workflow.
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._failed: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    def enqueue(
        self, owner: ObjectOwner, after_seconds: float = _BATCH_SECONDS
    ) -> None:
        """Queue an owner that has changes."""
        at = asyncio.get_running_loop().time() + after_seconds
        known = self._due.get(owner)
        if known is None or at < known:
            self._due[owner] = at
            self._wake.set()

    def repeat(self, workflow_id: str) -> None:
        """Send the newest observation again to the owners with this workflow.

        Its last run was closed, and the next run does not have the observation.
        """
        for owner in [
            each for each in self._sent_digests if each.workflow_id == workflow_id
        ]:
            del self._sent_digests[owner]
            self.enqueue(owner)

    def wake(self) -> None:
        """Check again which owners are blocked."""
        self._wake.set()

    async def run(self, index: Index[MessageT]) -> None:
        """Notify owners until cancelled. A slow signal delays no other owner."""
        try:
            await self._run(index)
        finally:
            sending = list(self._sending.values())
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    async def _run(self, index: Index[MessageT]) -> None:
        limit = asyncio.Semaphore(_CONCURRENT_MAX)

        async def send(owner: ObjectOwner) -> None:
            async with limit:
                await self._send_newest(index, owner)

        while True:
            now = asyncio.get_running_loop().time()
            self._wake.clear()
            if self._failed is not None:
                self._failed.result()
            due: dict[str, ObjectOwner] = {}
            for owner in self._due:
                if self._due_at(owner) <= now and self._is_free(owner):
                    due.setdefault(owner.workflow_id, owner)
            for owner in due.values():
                del self._due[owner]
                task = self._sending[owner.workflow_id] = asyncio.create_task(
                    send(owner)
                )
                task.add_done_callback(partial(self._sent, owner.workflow_id))
            self._sent_at = {
                each: at
                for each, at in self._sent_at.items()
                if at + _INTERVAL_SECONDS > now
            }
            next_at = min(
                (self._due_at(owner) for owner in self._due if self._is_free(owner)),
                default=None,
            )
            # Not asyncio.wait_for: before Python 3.12 it loses a cancellation that
            # arrives together with the awaited result.
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

    def _is_free(self, owner: ObjectOwner) -> bool:
        """Return whether an owner is not blocked and has no signal in flight."""
        return not self._is_blocked(owner) and owner.workflow_id not in self._sending

    def _due_at(self, owner: ObjectOwner) -> float:
        # Compute the delay here and not when the owner is queued. A signal to the owner
        # may be in flight at that time, and its second starts when that signal has
        # arrived.
        return max(
            self._due[owner],
            self._sent_at.get(owner.workflow_id, float("-inf")) + _INTERVAL_SECONDS,
        )

    async def _send_newest(self, index: Index[MessageT], owner: ObjectOwner) -> None:
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

    def _await(self, owner: ObjectOwner) -> None:
        """Queue an owner whose workflow does not run, in case nothing changes again."""
        absences = self._absences.get(owner, 0)
        self._absences[owner] = absences + 1
        pause = _ABSENT_SECONDS * 2.0 ** min(absences, 10)
        self.enqueue(owner, min(pause, _ABSENT_SECONDS_MAX))


def _seconds_until(moment: datetime) -> float:
    return max(0.0, (moment - utc_now()).total_seconds())
