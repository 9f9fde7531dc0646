"""A control plane in memory whose objects have no parts, as custom resources have none."""

import uuid
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from api_types.clock import timestamp, utc_now
from api_types.messages.entities import Delete, Replace
from fleet_client.refs.targets import Target
from front.store.projection import ObjectKey, Projection, Tree, shown
from tests.front.fleet_of_tenants import TreesOfTenants

_AHEAD = 3_600_000_000


@dataclass
class TreesWithoutParts(TreesOfTenants):
    """Deletes objects at once, and shows every change in the projection."""

    projection: Projection = field(default_factory=Projection)
    # Each watch then begins at a recent version, however long the requests take.
    _versions: Any = field(
        default_factory=lambda: count(int(utc_now().timestamp() * 1_000_000) + _AHEAD)
    )

    async def replace(self, target: Target, message: Replace, *, create: bool) -> Tree:
        """Store an object. Its generation counts the changes of its spec."""
        key = (target.kind.kind, target.namespace, target.name)
        before = self.trees.get(key, {})
        after = await super().replace(target, message, create=create)
        metadata = after["metadata"]
        if create:
            metadata["uid"] = str(uuid.uuid4())
            metadata["creationTimestamp"] = timestamp(utc_now())
        elif _written(before) == _written(after):
            # A write without a change keeps the version.
            self.trees[key] = before
            return before
        elif before.get("spec") != after["spec"]:
            metadata["generation"] = before["metadata"]["generation"] + 1
        self._renew(key)
        return self.trees[key]

    async def signal(self, target: Target, signal: Any, message: Any) -> None:
        """Apply a signal at once; a deleted object is gone."""
        key = (target.kind.kind, target.namespace, target.name)
        generation = self.trees[key]["metadata"]["generation"]
        await super().signal(target, signal, message)
        if isinstance(message, Delete):
            del self.trees[key]
            self.projection.remove(ObjectKey(*key), next(self._versions))
            return
        self.trees[key]["metadata"]["generation"] = generation + 1
        self._renew(key)

    def _renew(self, key: tuple[str, str, str]) -> None:
        version = next(self._versions)
        tree = self.trees[key]
        tree["metadata"]["resourceVersion"] = str(version)
        tree.pop("status", None)
        self.changed[key] = version
        self.projection.put(ObjectKey(*key), shown(tree))


def _written(tree: Tree) -> tuple[Any, ...]:
    metadata = tree.get("metadata", {})
    return (
        tree.get("spec"),
        metadata.get("labels") or {},
        metadata.get("annotations") or {},
    )
