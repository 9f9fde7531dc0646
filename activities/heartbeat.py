"""Heartbeats of an activity, whatever it waits for.

Heartbeats let Temporal retry a killed worker's activity within seconds, and deliver a cancellation to it. Work that queues behind a rate
limit, or waits for a pod to end, would miss them if it had to send them itself.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from temporalio import activity

_SECONDS = 10.0

Progress = dict[str, object]


@contextlib.asynccontextmanager
async def heartbeating(every_seconds: float = _SECONDS) -> AsyncIterator[Callable[[Progress], None]]:
    """Send a heartbeat every ten seconds, or as often as is said, and at once when the given function reports progress."""
    last: Progress = {}

    def report(progress: Progress) -> None:
        last.clear()
        last.update(progress)
        activity.heartbeat(dict(last))

    async def repeat() -> None:
        while True:
            activity.heartbeat(dict(last))
            await asyncio.sleep(every_seconds)

    task = asyncio.create_task(repeat())
    try:
        yield report
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
