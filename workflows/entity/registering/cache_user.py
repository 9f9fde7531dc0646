"""What the kinds that use a ModelCache share: registering at it, waiting until it exists, and for its first report."""

import contextlib
from collections.abc import Callable, Collection
from datetime import timedelta

from temporalio import workflow

from api_types.messages.caches import CacheUse
from api_types.messages.delivery import EntityRef, entity
from api_types.messages.signals import ModelCacheSignals
from workflows.entity.context import EntityContext
from workflows.entity.registering.awaiting import AwaitedEntities
from workflows.entity.state import EntityState

# A cache that exists reports within this time. To wait costs less than to place, or to render, twice.
FIRST_REPORT_TIMEOUT = timedelta(seconds=2)


class CacheRegistration:
    """Registers a user at caches; one that does not exist is waited for, and announces itself when it is created."""

    def __init__(self, context: EntityContext[EntityState]) -> None:
        self._context = context
        self._awaited = AwaitedEntities(context)

    async def register(self, name: str, use: CacheUse) -> bool:
        """Register at a cache; False while it does not exist."""
        cache = self._cache(name)
        self._awaited.keep([cache.workflow_id])
        if cache.workflow_id in self._awaited:
            return False
        if await self._context.signal_recorded(cache, ModelCacheSignals.CACHE_USED, use):
            return True
        self._awaited.wait_for(cache.workflow_id)
        return False

    async def unregister(self, name: str, use: CacheUse) -> None:
        """Register no longer at a cache."""
        await self._context.signal_recorded(self._cache(name), ModelCacheSignals.CACHE_USED, use)

    def stop_waiting(self) -> None:
        """Try again with the next pass: the cache announced itself, or another one is meant, or none."""
        self._awaited.keep(())

    def lost(self, name: str, workflow_ids: Collection[str]) -> bool:
        """Tell whether the cache is among workflows that were lost."""
        return bool(name) and self._cache(name).workflow_id in workflow_ids

    def workflow_ids(self, name: str) -> list[str]:
        """Name the workflow of the cache, if there is a cache."""
        return [self._cache(name).workflow_id] if name else []

    def _cache(self, name: str) -> EntityRef[ModelCacheSignals]:
        return entity(ModelCacheSignals, self._context.namespace, name)


async def wait_for_first_report(cache: str, stop: Callable[[], bool]) -> None:
    """Wait for the first report of a cache, or for another reason to stop, but not for long."""
    with contextlib.suppress(TimeoutError):
        await workflow.wait_condition(stop, timeout=FIRST_REPORT_TIMEOUT, timeout_summary=f"wait for ModelCache {cache} to answer")
