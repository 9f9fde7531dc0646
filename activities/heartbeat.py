"""Send heartbeats while an activity waits.

Heartbeats let Temporal retry the activity of a killed worker within seconds, and
deliver cancellations to it. Code that waits for a rate limit or for the end of a pod
cannot send them itself.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from temporalio import activity

_SECONDS = 10.0

Progress = dict[str, object]


@contextlib.asynccontextmanager
async def heartbeating(
    every_seconds: float = _SECONDS,
) -> AsyncIterator[Callable[[Progress], None]]:
    """Send a heartbeat every `every_seconds`, and at once when progress is reported."""
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
