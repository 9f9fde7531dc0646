"""What the kinds that use ModelCaches share: which they follow, registering at each, waiting until it exists, and for its first report."""

import contextlib
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

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


class FollowedCache(Protocol):
    """What a user carries of one cache; `cache_registered` names it once the user is registered there."""

    cache_registered: str


FollowedT = TypeVar("FollowedT", bound=FollowedCache)

# The key of the model's cache among those that are followed; all others have their own names.
MODEL = ""


class FollowedCaches(Generic[FollowedT]):
    """The caches that a user follows, by key: that of its model, and those of its adapters.

    `model` names the first, empty if there is none; `adapters` gives the keys of the others, and `state_of` what is carried of a key.
    """

    def __init__(
        self,
        context: EntityContext[EntityState],
        model: Callable[[], str],
        adapters: Callable[[], Collection[str]],
        state_of: Callable[[str], FollowedT],
    ) -> None:
        self._context = context
        self._model = model
        self._adapters = adapters
        self.state_of = state_of
        self._registrations = {MODEL: CacheRegistration(context)}

    def all_keys(self) -> list[str]:
        """Give the keys of all that are followed, in a fixed order."""
        return [MODEL, *sorted(self._adapters())]

    def key_of(self, cache: str) -> str | None:
        """Give the key of a cache by its name; None if it is not followed."""
        if cache and cache == self._model():
            return MODEL
        return cache if cache in self._adapters() else None

    def registration(self, key: str) -> CacheRegistration:
        """Give how the user registers at a cache."""
        return self._registrations.setdefault(key, CacheRegistration(self._context))

    def drop(self, key: str) -> None:
        """Follow a cache of an adapter no longer."""
        if key in self._registrations:
            self._registrations.pop(key).stop_waiting()

    def registered_at(self) -> list[str]:
        """Name the workflows of the caches that know that this object uses them."""
        return [found for key in self.all_keys() for found in self.registration(key).workflow_ids(self.state_of(key).cache_registered)]

    def register_again(self, workflow_ids: Collection[str]) -> None:
        """Register again at each cache that is one of these workflows."""
        for key in self.all_keys():
            if self.registration(key).lost(self.state_of(key).cache_registered, workflow_ids):
                self.state_of(key).cache_registered = ""

    def retry(self) -> None:
        """Look for missing caches in the next pass."""
        for registration in self._registrations.values():
            registration.stop_waiting()


async def wait_for_first_report(cache: str, stop: Callable[[], bool]) -> None:
    """Wait for the first report of a cache, or for another reason to stop, but not for long."""
    with contextlib.suppress(TimeoutError):
        await workflow.wait_condition(stop, timeout=FIRST_REPORT_TIMEOUT, timeout_summary=f"wait for ModelCache {cache} to answer")
