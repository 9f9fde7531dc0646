"""How many helm processes run at once: on one cluster, and in the whole worker (spec/stack-and-routing.md 10).

A helm process takes up to 200 MB, and of one that installs a large chart, an API server notices each object.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

PER_CLUSTER = 3


class HelmLimits:
    """The turns of one worker."""

    def __init__(self, processes: int, per_cluster: int = PER_CLUSTER) -> None:
        self._all = asyncio.Semaphore(processes)
        self._per_cluster = per_cluster
        # A cluster is forgotten when nothing of it runs or waits.
        self._clusters: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def turn(self, cluster: str) -> AsyncIterator[None]:
        """Wait for a turn and hold it; those who wait for a busy cluster take no turn from the others. Empty: no cluster is asked."""
        async with contextlib.AsyncExitStack() as held:
            if cluster:
                of_cluster = self._clusters.setdefault(cluster, asyncio.Semaphore(self._per_cluster))
                await held.enter_async_context(of_cluster)
            await held.enter_async_context(self._all)
            yield
