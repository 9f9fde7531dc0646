"""The objects that adapters read, as far as they read them, kept by kind and key.

The same objects give the same snapshot, whether they were listed or came as changes.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

Json = Mapping[str, Any]
_KEPT_METADATA = ("name", "namespace", "labels", "annotations")
# Many objects, most fields not read here: (more of the metadata, fields of the spec, of the status).
_KEPT = {
    "Node": ((), ("taints", "unschedulable"), ("conditions", "allocatable")),
    "Pod": (("creationTimestamp",), (), ("conditions",)),
    "Workload": (("ownerReferences",), (), ("conditions",)),
}


def reduced(kind: str, item: Json) -> dict[str, Any]:
    """Keep of an object what adapters read; the rest, above all managed fields, is large."""
    more, *fields = _KEPT.get(kind, ((),))
    metadata = {key: value for key, value in item["metadata"].items() if key in (*_KEPT_METADATA, *more)}
    spec, status = item.get("spec") or {}, item.get("status") or {}
    if fields:
        spec, status = ({key: part[key] for key in kept if key in part} for part, kept in zip((spec, status), fields, strict=True))
    return {"metadata": metadata, "spec": spec, "status": status}


class Objects:
    """The objects of one cluster; `changes` counts what changed."""

    def __init__(self) -> None:
        self.changes = 0
        self._kept: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}

    def put(self, kind: str, namespace: str, name: str, item: dict[str, Any] | None) -> bool:
        """Keep an object, or drop it (None); True if that changed anything."""
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
        """Give the objects of a kind by namespace and name."""
        kept = self._kept.get(kind, {})
        return (kept[key] for key in sorted(kept))


def condition_with(item: Json, kind: str, status: str = "True") -> Json | None:
    """Give an object's condition of that type if it has that status."""
    return next((c for c in item["status"].get("conditions") or () if c.get("type") == kind and c.get("status") == status), None)


def is_true(item: Json, kind: str) -> bool:
    """Whether a condition of an object is True."""
    return condition_with(item, kind) is not None


def milliseconds(stamp: str) -> int:
    """Read a timestamp of Kubernetes in ms since 1970; 0 for none."""
    return int(datetime.fromisoformat(stamp).timestamp() * 1000) if stamp else 0
