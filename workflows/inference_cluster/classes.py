"""How an InferenceCluster follows the classes of its pools: it registers with them, and they report every change."""

from datetime import timedelta
from typing import Any

from api_types.messages.delivery import entity
from api_types.messages.entities import ClassChanged, ClassUse
from api_types.messages.signals import InferenceClassSignals
from api_types.prices import UNPRICED
from workflows.entity import backoff
from workflows.entity.context import EntityContext
from workflows.inference_cluster.spec import class_names, missing_classes, node_pools
from workflows.inference_cluster.state import ClusterState, KnownClass

# A class announces itself when it is created. Its announcement may have been sent before this cluster could be found.
REGISTER_AGAIN = timedelta(seconds=5)


class Classes:
    """Registers with the classes of the pools."""

    def __init__(self, context: EntityContext[ClusterState]) -> None:
        self.context = context
        self.state = context.state

    def record(self, message: ClassChanged) -> None:
        """Record a class of the pools that is new or different."""
        if message.spec is not None and (message.name in class_names(self.state) or message.name in self.state.classes):
            self.state.classes[message.name] = KnownClass(generation=message.generation, spec=message.spec, price_milli=message.price_milli)
            self.context.mark_changed()

    async def follow(self) -> None:
        """Register with classes that are new in the spec and unregister from those that are no longer in it."""
        used = class_names(self.state)
        for name in used:
            if name not in self.state.registered_classes and await self._register(name, used=True):
                self.state.registered_classes.append(name)
        for name in [name for name in self.state.registered_classes if name not in used]:
            await self._register(name, used=False)
            self.state.registered_classes.remove(name)
            self.state.classes.pop(name, None)
        if missing_classes(self.state):
            self.context.requeue_after(max(REGISTER_AGAIN, backoff.transient(self.state.attempts)))

    async def unregister_all(self) -> None:
        """Unregister from every class, because the cluster is deleted."""
        for name in self.state.registered_classes:
            await self._register(name, used=False)

    async def _register(self, name: str, *, used: bool) -> bool:
        message = ClassUse(cluster=self.context.name, used=used)
        return await self.context.signal(entity(InferenceClassSignals, "", name), InferenceClassSignals.CLASS_USED, message)

    def publish_pools(self) -> None:
        """Publish what the classes say of the pools."""
        pools = published_pools(self.state)
        if pools != self.state.pools:
            self.state.pools = pools
            self.context.mark_changed()


def published_pools(state: ClusterState) -> list[dict[str, Any]]:
    """Give what the scheduler may see of the pools. A pool whose class is missing keeps what was published of it, with a mark."""
    last = {pool["name"]: pool for pool in state.pools}
    pools: list[dict[str, Any]] = []
    for pool in node_pools(state):
        known = state.classes.get(pool["className"])
        if known:
            nodes = pool.get("maxNodeCount") or pool.get("nodeCount", 1)
            price = {"priceMilli": known.price_milli} if known.price_milli != UNPRICED else {}
            pools.append({"name": pool["name"], "nodes": nodes, "devices": known.spec["devices"], **price})
        elif pool["name"] in last:
            pools.append({**last[pool["name"]], "classMissing": True})
    return pools
