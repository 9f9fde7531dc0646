"""The shared code of the kinds that use ModelCaches.

A user registers at each cache that it follows, waits until the cache exists, and then
for its first report.
"""

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

# A cache that exists reports within this time. The wait costs less than placing or
# rendering twice.
FIRST_REPORT_TIMEOUT = timedelta(seconds=2)


class CacheRegistration:
    """Registers a user at caches.

    It waits for a missing cache, which announces itself when it is created.
    """

    def __init__(self, context: EntityContext[EntityState]) -> None:
        self._context = context
        self._awaited = AwaitedEntities(context)

    async def register(self, name: str, use: CacheUse) -> bool:
        """Register at a cache; return False while the cache does not exist."""
        cache = self._cache(name)
        self._awaited.keep([cache.workflow_id])
        if cache.workflow_id in self._awaited:
            return False
        if await self._context.signal_recorded(
            cache, ModelCacheSignals.CACHE_USED, use
        ):
            return True
        self._awaited.wait_for(cache.workflow_id)
        return False

    async def unregister(self, name: str, use: CacheUse) -> None:
        """Unregister from a cache."""
        await self._context.signal_recorded(
            self._cache(name), ModelCacheSignals.CACHE_USED, use
        )

    def stop_waiting(self) -> None:
        """Retry with the next pass.

        The cache announced itself, or the object now uses another cache or none.
        """
        self._awaited.keep(())

    def lost(self, name: str, workflow_ids: Collection[str]) -> bool:
        """Return whether the cache is among workflows that were lost."""
        return bool(name) and self._cache(name).workflow_id in workflow_ids

    def workflow_ids(self, name: str) -> list[str]:
        """Return the workflow id of the cache, if there is a cache."""
        return [self._cache(name).workflow_id] if name else []

    def _cache(self, name: str) -> EntityRef[ModelCacheSignals]:
        return entity(ModelCacheSignals, self._context.namespace, name)


class FollowedCache(Protocol):
    """The state of one followed cache in its user.

    `cache_registered` is the name of the cache, once the user is registered there.
    """

    cache_registered: str


FollowedT = TypeVar("FollowedT", bound=FollowedCache)

# The key of the model's cache among the followed caches. The key of every other cache
# is its name.
MODEL = ""


class FollowedCaches(Generic[FollowedT]):
    """The caches that a user follows, by key: of its model and of its adapters.

    `model` returns the name of the model's cache, or an empty string. `adapters`
    returns the keys of the other caches, and `state_of` returns the state of a key.
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
        """Return the keys of all followed caches, in a fixed order."""
        return [MODEL, *sorted(self._adapters())]

    def key_of(self, cache: str) -> str | None:
        """Return the key of a cache by its name; None if it is not followed."""
        if cache and cache == self._model():
            return MODEL
        return cache if cache in self._adapters() else None

    def registration(self, key: str) -> CacheRegistration:
        """Return the registration at a cache."""
        return self._registrations.setdefault(key, CacheRegistration(self._context))

    def drop(self, key: str) -> None:
        """Stop following the cache of an adapter."""
        if key in self._registrations:
            self._registrations.pop(key).stop_waiting()

    def registered_at(self) -> list[str]:
        """Return the workflow ids of the caches where this object is registered."""
        found: list[str] = []
        for key in self.all_keys():
            registered = self.state_of(key).cache_registered
            found += self.registration(key).workflow_ids(registered)
        return found

    def register_again(self, workflow_ids: Collection[str]) -> None:
        """Register again at each cache that is one of these workflows."""
        for key in self.all_keys():
            if self.registration(key).lost(
                self.state_of(key).cache_registered, workflow_ids
            ):
                self.state_of(key).cache_registered = ""

    def retry(self) -> None:
        """Look for missing caches in the next pass."""
        for registration in self._registrations.values():
            registration.stop_waiting()


async def wait_for_first_report(cache: str, stop: Callable[[], bool]) -> None:
    """Wait for the first report of a cache, for a short time at most.

    `stop` may return True for other reasons too.
    """
    with contextlib.suppress(TimeoutError):
        await workflow.wait_condition(
            stop,
            timeout=FIRST_REPORT_TIMEOUT,
            timeout_summary=f"wait for ModelCache {cache} to answer",
        )
