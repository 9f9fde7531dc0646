"""Register an InferenceCluster with its pools' classes and record their changes."""

from collections.abc import Collection
from typing import Any

from api_types.messages.delivery import EntityRef, entity
from api_types.messages.entities import ClassChanged, ClassUse
from api_types.messages.signals import InferenceClassSignals
from api_types.prices import UNPRICED
from workflows.entity.context import EntityContext
from workflows.entity.registering.awaiting import AwaitedEntities
from workflows.inference_cluster.cloud_pools import provided_nodes
from workflows.inference_cluster.gaps import unusable
from workflows.inference_cluster.spec import class_names, node_pools
from workflows.inference_cluster.state import ClusterState, KnownClass


class Classes:
    def __init__(self, context: EntityContext[ClusterState]) -> None:
        self.context = context
        self.state = context.state
        # A class announces itself when it is created, but it may not find this cluster
        # yet.
        self.awaited = AwaitedEntities(context)

    def record(self, message: ClassChanged) -> None:
        """Record a report of a class that the pools use.

        A new class of the same name does not know that this cluster uses it. Without a
        new registration it could be deleted, and its changes would not arrive. A cluster
        that is being deleted does not register, but unregisters at its end: the messages
        of a class that was reset are delivered to it again.
        """
        if message.spec is None or (
            message.name not in class_names(self.state)
            and message.name not in self.state.classes
        ):
            return
        known = self.state.classes.get(message.name)
        if (
            known
            and known.uid == message.uid
            and (message.generation, message.sequence)
            < (known.generation, known.sequence)
        ):
            # The report is late. Reports of different objects have no order.
            return
        self.awaited.stop(_class(message.name).workflow_id)
        if (
            known
            and known.uid != message.uid
            and message.name in self.state.registered_classes
            and not self.state.deleting
        ):
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
        """Register with classes that the spec uses, and unregister from all others."""
        used = class_names(self.state)
        self.awaited.keep([_class(name).workflow_id for name in used])
        for name in used:
            if (
                name in self.state.registered_classes
                or _class(name).workflow_id in self.awaited
            ):
                continue
            # A message that arrives during the send may remove the entry again.
            self.state.registered_classes.append(name)
            if not await self._register(name, used=True):
                self.state.registered_classes = [
                    other for other in self.state.registered_classes if other != name
                ]
                self.awaited.wait_for(_class(name).workflow_id)
        for name in [
            name for name in self.state.registered_classes if name not in used
        ]:
            self.state.registered_classes = [
                other for other in self.state.registered_classes if other != name
            ]
            self.state.classes.pop(name, None)
            await self._register(name, used=False)

    def registered_at(self) -> list[str]:
        """Return the workflow IDs of the classes that know this cluster."""
        return [_class(name).workflow_id for name in self.state.registered_classes]

    def register_again(self, workflow_ids: Collection[str]) -> None:
        """Register with these classes again in the next pass.

        A cluster that is being deleted does not register. At its end it unregisters
        from all classes that may know it: a class that is checked for the first time
        may have existed before.
        """
        if self.state.deleting:
            return
        self.state.registered_classes = [
            name
            for name in self.state.registered_classes
            if _class(name).workflow_id not in workflow_ids
        ]

    def retry(self) -> None:
        """Search for missing classes in the next pass."""
        self.awaited.keep(())

    async def unregister_all(self) -> None:
        """Unregister from every class at the end of the deletion."""
        for name in self.state.registered_classes:
            await self._register(name, used=False)

    async def _register(self, name: str, *, used: bool) -> bool:
        message = ClassUse(
            cluster=self.context.name,
            uid=self.state.uid,
            sequence=self.context.next_registration(),
            used=used,
        )
        return await self.context.signal_recorded(
            _class(name), InferenceClassSignals.CLASS_USED, message
        )

    def publish_pools(self) -> None:
        """Publish the pools with the devices of their classes."""
        pools = published_pools(self.state)
        if pools != self.state.pools:
            self.state.pools = pools
            self.context.mark_changed()


def _class(name: str) -> EntityRef[InferenceClassSignals]:
    return entity(InferenceClassSignals, "", name)


def published_pools(state: ClusterState) -> list[dict[str, Any]]:
    """Return the pools as the scheduler sees them.

    A pool whose class is missing keeps its last published form and is marked.
    """
    last = {pool["name"]: pool for pool in state.pools}
    pools: list[dict[str, Any]] = []
    for pool in node_pools(state):
        known = state.classes.get(pool["className"])
        if known:
            wanted = pool.get("maxNodeCount") or pool.get("nodeCount", 1)
            nodes, shortage = provided_nodes(state, pool["name"], wanted)
            published = {
                "name": pool["name"],
                "nodes": nodes,
                "devices": known.spec["devices"],
            }
            if shortage:
                published["shortage"] = shortage
            if known.price_milli != UNPRICED:
                published["priceMilli"] = known.price_milli
            if problem := unusable(state, known.spec["devices"]):
                published["unusable"] = problem
            pools.append(published)
        elif pool["name"] in last:
            pools.append({**last[pool["name"]], "classMissing": True})
    return pools
