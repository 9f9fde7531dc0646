"""Runs the work of an activity with heartbeats, and limits how long it retries.

The heartbeats carry the time of the last progress from one attempt to the next.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.clouds.accounts import CloudAccounts
from activities.heartbeat import Progress, heartbeating
from activities.watching.running import until_shutdown
from api_types.errors import CredentialsInvalid, Dependency, NotYet, TransientError
from api_types.messages.clouds import WAITS, CloudAccount

ResultT = TypeVar("ResultT")

# The key in the heartbeats by which an attempt passes its last progress to the next
# attempt.
_SEEN_AT = "seenAt"


@dataclass(frozen=True)
class Patience:
    """Seconds for which an activity retries transient errors by itself.

    After that, its workflow gets the error. `dependency` applies to a deletion that is
    rejected because another object uses this one. The workflow then searches for the
    other object. `unknown` applies to a dependency that the cloud does not find. After
    that time a new dependency would be visible everywhere at the cloud, so it may have
    been deleted. The workflow observes all objects and creates it again.
    """

    trouble: float = 1800.0
    dependency: float = 300.0
    unknown: float = 120.0

    def after(self, error: TransientError) -> float:
        """Return after how many seconds the workflow gets an error."""
        if isinstance(error, Dependency):
            return self.dependency
        return self.unknown if isinstance(error, NotYet) else self.trouble


class WorkProgress:
    """The progress of an activity: its heartbeats, and when it last progressed."""

    def __init__(
        self,
        clock: Callable[[], float],
        seen_at: float,
        send: Callable[[Progress], None],
    ) -> None:
        self._clock = clock
        self._send = send
        self.seen_at = seen_at

    def report(self, text: str) -> None:
        """Send a heartbeat that states what the activity waits for."""
        self._send({WAITS: text, _SEEN_AT: self.seen_at})

    def progressed(self) -> None:
        """Record progress. May be called in any thread."""
        self.seen_at = self._clock()


async def run_with_patience(
    work: Callable[[WorkProgress], Awaitable[ResultT]],
    account: CloudAccount,
    accounts: CloudAccounts,
    patience: Patience,
    clock: Callable[[], float],
) -> ResultT:
    """Run the work with heartbeats until the worker shuts down.

    A transient failure becomes final when it lasts too long. A rejected credential
    is tried once more with new clients, because the cached ones may hold a token
    that the cloud revoked.
    """
    async with heartbeating() as send:
        progress = WorkProgress(clock, _seen_at(), send)
        progress.report("")
        renewals = accounts.renewals(account)
        try:
            try:
                return await _until_shutdown(partial(work, progress))
            except CredentialsInvalid:
                accounts.renew(account, renewals)
                return await _until_shutdown(partial(work, progress))
        except TransientError as error:
            if clock() - progress.seen_at < patience.after(error):
                raise
            raise ApplicationError(
                error.message, type=error.type, non_retryable=True
            ) from None


def _seen_at() -> float:
    """Return when the work last progressed, in seconds since 1970.

    The last heartbeat of the previous attempt contains the time. Without a heartbeat it
    is the time at which the activity was scheduled. Only heartbeats that reported
    progress count, because the last heartbeat before a failure may be lost.
    """
    details = activity.info().heartbeat_details
    last = details[-1] if details else None
    seen_at = last.get(_SEEN_AT) if isinstance(last, dict) else None
    return (
        float(seen_at)
        if isinstance(seen_at, int | float)
        else activity.info().scheduled_time.timestamp()
    )


async def _until_shutdown(work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Run the work.

    When the worker shuts down, cancel it and raise a TransientError.
    """
    done = asyncio.ensure_future(work())
    stop = asyncio.create_task(until_shutdown())
    try:
        await asyncio.wait((done, stop), return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            done.cancel()
            await asyncio.gather(done, return_exceptions=True)
            await stop
        return await done
    finally:
        stop.cancel()
        done.cancel()
        await asyncio.gather(stop, done, return_exceptions=True)
