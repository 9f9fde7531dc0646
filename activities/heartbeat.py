"""Keep telling that an activity lives, whatever it waits for.

A heartbeat is what lets a killed worker's activity begin again within seconds, and what brings a cancellation to it. Work that may queue
behind a rate, or wait for a pod to end, would miss it now and then if it had to remember it itself.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from temporalio import activity

_SECONDS = 10.0

Progress = dict[str, object]


@contextlib.asynccontextmanager
async def heartbeating() -> AsyncIterator[Callable[[Progress], None]]:
    """Beat every ten seconds, and at once whenever the given function is told of progress."""
    last: Progress = {}

    def tell(progress: Progress) -> None:
        last.clear()
        last.update(progress)
        activity.heartbeat(dict(last))

    async def repeat() -> None:
        while True:
            activity.heartbeat(dict(last))
            await asyncio.sleep(_SECONDS)

    task = asyncio.create_task(repeat())
    try:
        yield tell
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
