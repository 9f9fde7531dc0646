"""Run a coroutine beside the body of a test."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Run a coroutine until the body ends.

    An exception that it raises earlier fails the test.
    """
    task = asyncio.create_task(work)
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
