"""The objects that adapters read, reduced to the fields that they read.

A list of the objects and a sequence of changes result in the same snapshot.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

Json = Mapping[str, Any]
_KEPT_METADATA = ("name", "namespace", "labels", "annotations")
# The kept fields of kinds with many objects: more metadata, fields of the spec, fields
# of the status.
_KEPT = {
    "Node": ((), ("taints", "unschedulable"), ("conditions", "allocatable")),
    "Pod": (("creationTimestamp",), (), ("conditions",)),
    "Workload": (("ownerReferences",), (), ("conditions",)),
}


def reduced(kind: str, item: Json) -> dict[str, Any]:
    """Return the fields of an object that adapters read. Managed fields are large."""
    more, *fields = _KEPT.get(kind, ((),))
    metadata = {
        key: value
        for key, value in item["metadata"].items()
        if key in (*_KEPT_METADATA, *more)
    }
    spec, status = item.get("spec") or {}, item.get("status") or {}
    if fields:
        spec, status = (
            {key: part[key] for key in kept if key in part}
            for part, kept in zip((spec, status), fields, strict=True)
        )
    return {"metadata": metadata, "spec": spec, "status": status}


class CapacityObjects:
    """The objects of one cluster. `changes` counts modifications."""

    def __init__(self) -> None:
        self.changes = 0
        self._kept: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}

    def put(
        self, kind: str, namespace: str, name: str, item: dict[str, Any] | None
    ) -> bool:
        """Store an object, or drop it if `item` is None.

        Returns True if anything changed.
        """
        kept = self._kept.setdefault(kind, {})
        if kept.get((namespace, name)) == item:
            return False
        if item is None:
            del kept[namespace, name]
        else:
            kept[namespace, name] = item
        self.changes += 1
        return True

    def of(self, kind: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a kind, sorted by namespace and name."""
        kept = self._kept.get(kind, {})
        return (kept[key] for key in sorted(kept))


def condition_with(item: Json, kind: str, status: str = "True") -> Json | None:
    """Return an object's condition of that type if it has that status."""
    return next(
        (
            c
            for c in item["status"].get("conditions") or ()
            if c.get("type") == kind and c.get("status") == status
        ),
        None,
    )


def is_true(item: Json, kind: str) -> bool:
    return condition_with(item, kind) is not None


def milliseconds(stamp: str) -> int:
    """Convert a timestamp of Kubernetes to ms since 1970.

    Returns 0 for an empty one.
    """
    return int(datetime.fromisoformat(stamp).timestamp() * 1000) if stamp else 0
