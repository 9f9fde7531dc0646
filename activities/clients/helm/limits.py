"""Limits for concurrent helm processes, per cluster and in the whole worker.

A helm process takes up to 200 MB, and a large chart puts load on the API server.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

PER_CLUSTER = 3


class HelmLimits:
    """The slots of one worker."""

    def __init__(self, processes: int, per_cluster: int = PER_CLUSTER) -> None:
        self._all = asyncio.Semaphore(processes)
        self._per_cluster = per_cluster
        # The entry of a cluster is removed when none of its processes runs or waits.
        self._clusters: WeakValueDictionary[str, asyncio.Semaphore] = (
            WeakValueDictionary()
        )

    @contextlib.asynccontextmanager
    async def turn(self, cluster: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it.

        Processes that wait for a busy cluster take no slot from other clusters. An
        empty name means that the process contacts no cluster.
        """
        async with contextlib.AsyncExitStack() as held:
            if cluster:
                of_cluster = self._clusters.setdefault(
                    cluster, asyncio.Semaphore(self._per_cluster)
                )
                await held.enter_async_context(of_cluster)
            await held.enter_async_context(self._all)
            yield
