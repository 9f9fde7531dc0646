"""How an InferenceCluster follows the classes of its pools: it registers with them, and they report every change."""

from collections.abc import Collection
from typing import Any

from api_types.messages.delivery import EntityRef, entity
from api_types.messages.entities import ClassChanged, ClassUse
from api_types.messages.signals import InferenceClassSignals
from api_types.prices import UNPRICED
from workflows.entity.context import EntityContext
from workflows.entity.registering.awaiting import AwaitedEntities
from workflows.inference_cluster.spec import class_names, node_pools
from workflows.inference_cluster.state import ClusterState, KnownClass


class Classes:
    """Registers with the classes of the pools."""

    def __init__(self, context: EntityContext[ClusterState]) -> None:
        self.context = context
        self.state = context.state
        # A class announces itself when it is created, but its announcement may be sent before this cluster can be found.
        self.awaited = AwaitedEntities(context)

    def record(self, message: ClassChanged) -> None:
        """Record a class of the pools that is new or different.

        Another object of that name does not know that this cluster uses it: without a registration it could be deleted, and its changes
        would not arrive.
        """
        if message.spec is None or (message.name not in class_names(self.state) and message.name not in self.state.classes):
            return
        known = self.state.classes.get(message.name)
        if known and known.uid == message.uid and (message.generation, message.sequence) < (known.generation, known.sequence):
            # A late one; there is no order between those of different objects.
            return
        self.awaited.stop(_class(message.name).workflow_id)
        if known and known.uid != message.uid and message.name in self.state.registered_classes:
            self.state.registered_classes.remove(message.name)
        self.state.classes[message.name] = KnownClass(
            uid=message.uid,
            generation=message.generation,
            sequence=message.sequence,
            spec=message.spec,
            price_milli=message.price_milli,
        )
        self.context.mark_changed()

    async def follow(self) -> None:
        """Register with classes that are new in the spec and unregister from those that are no longer in it."""
        used = class_names(self.state)
        self.awaited.keep([_class(name).workflow_id for name in used])
        for name in used:
            if name in self.state.registered_classes or _class(name).workflow_id in self.awaited:
                continue
            # What arrives while this is sent may make it void again.
            self.state.registered_classes.append(name)
            if not await self._register(name, used=True):
                self.state.registered_classes = [other for other in self.state.registered_classes if other != name]
                self.awaited.wait_for(_class(name).workflow_id)
        for name in [name for name in self.state.registered_classes if name not in used]:
            self.state.registered_classes = [other for other in self.state.registered_classes if other != name]
            self.state.classes.pop(name, None)
            await self._register(name, used=False)

    def registered_at(self) -> list[str]:
        """Name the workflows of the classes that know that this cluster uses them."""
        return [_class(name).workflow_id for name in self.state.registered_classes]

    def register_again(self, workflow_ids: Collection[str]) -> None:
        """Register with these classes again in the next pass.

        A cluster that is being deleted registers no more, and unregisters at its end from all
        classes that may know it: a class that was checked for the first time may have run all along.
        """
        if self.state.deleting:
            return
        self.state.registered_classes = [name for name in self.state.registered_classes if _class(name).workflow_id not in workflow_ids]

    def retry(self) -> None:
        """Look for missing classes in the next pass."""
        self.awaited.keep(())

    async def unregister_all(self) -> None:
        """Unregister from every class, because the cluster is deleted."""
        for name in self.state.registered_classes:
            await self._register(name, used=False)

    async def _register(self, name: str, *, used: bool) -> bool:
        message = ClassUse(cluster=self.context.name, uid=self.state.uid, sequence=self.context.next_registration(), used=used)
        return await self.context.signal_recorded(_class(name), InferenceClassSignals.CLASS_USED, message)

    def publish_pools(self) -> None:
        """Publish what the classes say of the pools."""
        pools = published_pools(self.state)
        if pools != self.state.pools:
            self.state.pools = pools
            self.context.mark_changed()


def _class(name: str) -> EntityRef[InferenceClassSignals]:
    return entity(InferenceClassSignals, "", name)


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
