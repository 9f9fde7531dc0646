"""How a ModelDeployment follows its cache: it registers once, and is told where the cache may be staged and how far it is."""

import contextlib
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow

from api_types import names
from api_types.messages.caches import CacheChanged, CacheUse
from workflows.entity import backoff
from workflows.entity.entity import Entity
from workflows.entity.state import EntityState

# A cache that does not exist announces itself when it comes; this is the net below.
LOOK_FOR_CACHE = backoff.transient(4)

ANSWER_PATIENCE = timedelta(seconds=2)


class WithCache(EntityState):
    """What a deployment carries about its cache: what it last told, and its name, once it knows of us."""

    cache: CacheChanged | None = None
    cache_registered: str = ""


StateT = TypeVar("StateT", bound=WithCache)


class DeploymentCaches(Entity[StateT]):
    """The part of a deployment that deals with its cache."""

    @workflow.signal
    def cache_changed(self, order: Any) -> None:
        """Note what is new about the cache; one that was just born, or is gone, has to be told of us."""
        message = self.read(CacheChanged, order)
        if message is None or message.cache != self.cache_name():
            return
        known = self.state.cache
        if not message.uid or not message.present:
            self.state.cache_registered = ""
            self.state.cache = known if message.present else None
        elif known is None or known.uid != message.uid or message.sequence >= known.sequence:
            self.state.cache = message
        self.requeue()

    def cache_name(self) -> str:
        """Name the cache that the template references; empty if it references none."""
        template = ((self.state.spec or {}).get("template") or {}).get("spec") or {}
        name: str = (template.get("modelCacheRef") or {}).get("name", "")
        return name

    async def cache(self) -> dict[str, Any]:
        """Give the referenced cache as placement reads it: empty if none is, state Absent or Unresolved while it cannot be used.

        What that means for conditions is the scheduler's to say: two who write one condition would never come to rest.
        """
        name = self.cache_name()
        if self.state.cache and self.state.cache.cache != name:
            self.state.cache = None
        if self.state.cache_registered != name:
            self.state.cache_registered = name if name and await self._register(name) else ""
            await self._hear()
        if not name:
            return {}
        if not self.state.cache_registered:
            self.requeue_after(LOOK_FOR_CACHE)
            return {"name": name, "state": "Absent"}
        told = self.state.cache
        if told is None or told.cache != name:
            return {"name": name, "state": "Unresolved"}
        return {
            "name": name,
            "state": "Present",
            "manifest": {
                "metadata": {"name": name, **({"deletionTimestamp": "set"} if told.deleting else {})},
                "spec": {"clusterSelector": {"matchLabels": told.match_labels}},
                "status": {"clusters": [{"name": cluster, "phase": phase} for cluster, phase in sorted(told.phases.items())]},
            },
        }

    async def _hear(self) -> None:
        """Wait for the first word of a cache that knows of us: to ask for places twice would cost more."""
        if self.state.cache_registered and self.state.cache is None:
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: self.state.cache is not None or bool(self.state.deleted),
                    timeout=ANSWER_PATIENCE,
                    timeout_summary=f"ModelCache {self.state.cache_registered} answers",
                )

    async def _register(self, name: str) -> bool:
        workflow_id = names.workflow_id("ModelDeployment", self.namespace, self.name)
        wanted = CacheUse(workflow_id=workflow_id, uid=self.state.uid)
        return await self.tell(names.workflow_id("ModelCache", self.namespace, name), "cache_wanted", wanted)
