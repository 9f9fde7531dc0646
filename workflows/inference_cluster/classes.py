"""How an InferenceCluster deals with the classes of its pools: it registers with them, hears of changes, and publishes what they say."""

from datetime import timedelta
from typing import Any, TypeVar

from pydantic import Field
from temporalio import workflow

from api_types import names
from api_types.base import Message
from api_types.messages.entities import ClassChanged, ClassUse
from api_types.prices import UNPRICED
from workflows.entity import backoff
from workflows.entity.entity import Entity
from workflows.entity.state import EntityState

# A class may be born while its announcement overtakes our registration.
LOOK_FOR_CLASSES = timedelta(seconds=5)


class KnownClass(Message):
    """A class as it was last told."""

    generation: int
    spec: dict[str, Any]
    price_milli: int = UNPRICED


class WithClasses(EntityState):
    """What a cluster carries about classes: what they said, those it registered with, and the pools that follow from them."""

    classes: dict[str, KnownClass] = Field(default_factory=dict)
    wanted: list[str] = Field(default_factory=list)
    pools: list[dict[str, Any]] = Field(default_factory=list)


StateT = TypeVar("StateT", bound=WithClasses)


class ClusterClasses(Entity[StateT]):
    """The part of a cluster that deals with classes."""

    @workflow.signal
    def class_changed(self, order: Any) -> None:
        """Note a class that is new or different."""
        message = self.read(ClassChanged, order)
        if message and message.spec is not None and (message.name in self.class_names() or message.name in self.state.classes):
            self.state.classes[message.name] = KnownClass(generation=message.generation, spec=message.spec, price_milli=message.price_milli)
            self.touch()

    def class_names(self) -> list[str]:
        """Name the classes of the pools, each once, in pool order."""
        return list(dict.fromkeys(pool["className"] for pool in (self.state.spec or {}).get("nodePools", ())))

    async def follow_classes(self) -> None:
        """Register with classes that are new in the spec and let go of those that left it."""
        used = self.class_names()
        for name in used:
            if name not in self.state.wanted and await self._want(name, used=True):
                self.state.wanted.append(name)
        for name in [name for name in self.state.wanted if name not in used]:
            await self._want(name, used=False)
            self.state.wanted.remove(name)
            self.state.classes.pop(name, None)
        if self.missing_classes():
            self.requeue_after(max(LOOK_FOR_CLASSES, backoff.transient(self.state.attempts)))

    async def _want(self, name: str, *, used: bool) -> bool:
        message = ClassUse(cluster=self.name, used=used)
        return await self.tell(names.workflow_id("InferenceClass", "", name), "class_wanted", message)

    def missing_classes(self) -> list[str]:
        """Name the classes that are used and not known."""
        return [name for name in self.class_names() if name not in self.state.classes]

    def publish_pools(self) -> None:
        """Write what the scheduler may see of the pools; what was published of a pool whose class is gone stays, marked."""
        last = {pool["name"]: pool for pool in self.state.pools}
        pools: list[dict[str, Any]] = []
        for pool in (self.state.spec or {}).get("nodePools", ()):
            known = self.state.classes.get(pool["className"])
            if known:
                nodes = pool.get("maxNodeCount") or pool.get("nodeCount", 1)
                price = {"priceMilli": known.price_milli} if known.price_milli != UNPRICED else {}
                pools.append({"name": pool["name"], "nodes": nodes, "devices": known.spec["devices"], **price})
            elif pool["name"] in last:
                pools.append({**last[pool["name"]], "classMissing": True})
        if pools != self.state.pools:
            self.state.pools = pools
            self.touch()
