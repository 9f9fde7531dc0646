"""Threads for the calls of clouds, which block: a few for each account.

The threads of the event loop are for the whole worker, also for looking up addresses. A cloud that does not answer holds a call for
minutes, and would take all of them; so the calls of an account wait for one another only. That also limits how many are made at once, for
the quiet of an account that others share: clouds limit requests per account.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

from api_types.messages.clouds import CloudAccount

CALLS_AT_ONCE = 8
# Threads begin when they are needed, and end some time after the last use of a pool that is not kept.
_POOLS_MAX = 200

ResultT = TypeVar("ResultT")


class InThread(Protocol):
    """Makes a call that blocks, in a thread."""

    def __call__(self, call: Callable[..., ResultT], /, *arguments: Any) -> Awaitable[ResultT]:
        """Give what the call gives; raise what it raises."""


async def in_any_thread(call: Callable[..., ResultT], /, *arguments: Any) -> ResultT:
    """Make a call in a thread of the event loop."""
    return await asyncio.to_thread(call, *arguments)


class AccountThreads:
    """The threads of each account, by its cloud and its Secret."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str], ThreadPoolExecutor] = {}

    def of(self, account: CloudAccount) -> InThread:
        """Give what makes calls in the threads of an account."""
        return self.named(account.provider, account.secret)

    def named(self, kind: str, name: str) -> InThread:
        """Give what makes calls in threads of a name, for a credential that is that of no account."""
        key = (kind, name)
        # The one that was used last is dropped last.
        pool = self._pools.pop(key, None) or ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix=f"{kind}-{name}")
        self._pools[key] = pool
        while len(self._pools) > _POOLS_MAX:
            del self._pools[next(iter(self._pools))]

        async def in_thread(call: Callable[..., ResultT], /, *arguments: Any) -> ResultT:
            context = contextvars.copy_context()
            return await asyncio.get_running_loop().run_in_executor(pool, partial(context.run, call, *arguments))

        return in_thread
