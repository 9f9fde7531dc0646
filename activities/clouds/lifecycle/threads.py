"""Threads for the blocking calls of clouds, a few for each account.

The event loop's threads serve the whole worker, including DNS look-ups. A cloud that
does not respond blocks calls for minutes, and could occupy all of these threads. With
separate threads the calls of an account only wait for one another. This also limits
concurrent calls per account, because clouds limit requests per account.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

from api_types.messages.clouds import CloudAccount

CALLS_AT_ONCE = 8
# Threads start on demand. The threads of a dropped pool end some time after their last
# use.
_POOLS_MAX = 200

ResultT = TypeVar("ResultT")


class InThread(Protocol):
    """Runs a blocking call in a thread."""

    def __call__(
        self, call: Callable[..., ResultT], /, *arguments: Any
    ) -> Awaitable[ResultT]:
        """Return the result of the call, or raise its error."""


async def in_any_thread(call: Callable[..., ResultT], /, *arguments: Any) -> ResultT:
    """Run a call in a thread of the event loop."""
    return await asyncio.to_thread(call, *arguments)


class AccountThreads:
    """The threads of each account, by cloud and Secret."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str], ThreadPoolExecutor] = {}

    def of(self, account: CloudAccount) -> InThread:
        return self.named(account.provider, account.secret)

    def named(self, kind: str, name: str) -> InThread:
        """Return the threads of a named credential that belongs to no account."""
        key = (kind, name)
        # Move the pool to the end: the least recently used pool is dropped first.
        pool = self._pools.pop(key, None) or ThreadPoolExecutor(
            CALLS_AT_ONCE, thread_name_prefix=f"{kind}-{name}"
        )
        self._pools[key] = pool
        while len(self._pools) > _POOLS_MAX:
            del self._pools[next(iter(self._pools))]

        async def in_thread(
            call: Callable[..., ResultT], /, *arguments: Any
        ) -> ResultT:
            context = contextvars.copy_context()
            return await asyncio.get_running_loop().run_in_executor(
                pool, partial(context.run, call, *arguments)
            )

        return in_thread
