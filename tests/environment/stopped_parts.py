"""Stop processes of a testbed for a while, as on a machine that goes down, and start the same ones again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from testbed.process.processes import ProcessFiles
from testbed.testbed import Testbed


@asynccontextmanager
async def stopped(owner: Testbed, home: Path, parts: Sequence[str], seconds: float) -> AsyncIterator[Awaitable[None]]:
    """Stop parts, the last one first, and start them again after the body, but not before so many seconds are over; gives that moment.

    The controllers of a cluster are to be stopped with its API server, as on a real control plane; left running they take a minute to
    reconnect.
    """
    specs = ProcessFiles(home).specs()
    for part in reversed(parts):
        await asyncio.to_thread(owner.stop_process, part)
    over = asyncio.create_task(asyncio.sleep(seconds))
    try:
        yield over
        await over
    finally:
        over.cancel()
        for part in parts:
            await asyncio.to_thread(owner.start_process, part, list(specs[part].argv), dict(specs[part].environment))
