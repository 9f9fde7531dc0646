"""Stop processes of a testbed, as in an outage, and start the same ones again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from testbed.process.processes import ProcessFiles
from testbed.testbed import Testbed


@asynccontextmanager
async def stopped(
    owner: Testbed, home: Path, parts: Sequence[str], seconds: float
) -> AsyncIterator[Awaitable[None]]:
    """Stop parts in reverse order; start them again after the body and after `seconds`.

    Yields an awaitable that ends when `seconds` are over. Stop the controllers of a
    cluster with its API server, as on a real control plane: controllers that keep
    running need a minute to reconnect.
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
            await asyncio.to_thread(
                owner.start_process,
                part,
                list(specs[part].argv),
                dict(specs[part].environment),
            )
