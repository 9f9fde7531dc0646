"""How an InferenceCluster deals with caches: it tells them how it is, and does not go while one has something here."""

import hashlib
import json
from abc import abstractmethod
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import Field
from temporalio import workflow

from activities.messaging import EntityClient
from api_types.messages.caches import CacheOnCluster, CacheSite
from api_types.messages.delivery import Broadcast
from workflows.entity import activity_options
from workflows.entity.entity import Entity
from workflows.entity.state import EntityState

# Visibility lags behind the start of a cache, so what caches must know is told twice.
TELL_AGAIN = timedelta(seconds=2)


class WithCaches(EntityState):
    """What a cluster carries about caches: those with objects here, and what all of them were last told."""

    caches: list[str] = Field(default_factory=list)
    told_caches: str = ""
    tell_caches_again: bool = False


StateT = TypeVar("StateT", bound=WithCaches)


class ClusterCaches(Entity[StateT]):
    """The part of a cluster that deals with caches."""

    @abstractmethod
    def site(self) -> CacheSite:
        """Say what caches must know of this cluster."""

    @workflow.signal
    def cache_staged(self, order: Any) -> None:
        """Note that a cache has something here, or nothing any more."""
        message = self.read(CacheOnCluster, order)
        if message:
            others = [cache for cache in self.state.caches if cache != message.cache]
            self.state.caches = sorted([*others, message.cache]) if message.staged else others
            self.touch()

    @workflow.query
    def cache_site(self) -> dict[str, Any]:
        """Give what a cache must know of a cluster."""
        return self.site().wire()

    async def tell_caches(self) -> None:
        """Tell every cache what is new; which of them it concerns, they know themselves."""
        site = self.site()
        text = json.dumps(site.model_copy(update={"sequence": 0}).wire(), sort_keys=True)
        told = hashlib.sha256(text.encode()).hexdigest()[:16]
        if told == self.state.told_caches and not self.state.tell_caches_again:
            return
        self.state.tell_caches_again = told != self.state.told_caches
        self.state.told_caches = told
        await workflow.execute_activity_method(
            EntityClient.broadcast,
            Broadcast(kinds=["ModelCache"], signal="cluster_changed", payload=site.wire()),
            **activity_options.remote(activity_options.ENTITY_BATCH, f"tell caches how {self.name} is"),
        )
        if self.state.tell_caches_again:
            self.requeue_after(TELL_AGAIN)
