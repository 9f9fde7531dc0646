"""The objects of one API server, and their changes.

Stored objects are never changed in place: each write stores another dictionary. Times come from
`api_types.clock`, which the simulation moves.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

from activities.cluster_objects.cluster_api import GroupVersionKind, ObjectId, Propagation
from api_types import clock
from tests.simulation import fields
from tests.simulation.fields import Json

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
HANDS = "kubectl-edit"
_HISTORY_MAX = 4_000
_GRACE_SECONDS = 30


class RequestRefused(Exception):
    """A request that the server refuses, with the status of its answer and the text."""

    def __init__(self, status: int, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.status, self.text, self.reason = status, text, reason


class ObjectKey(NamedTuple):
    """An object in any version of its API."""

    group: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, target: ObjectId) -> "ObjectKey":
        return cls(target.kind.group, target.kind.kind, target.namespace, target.name)


class StoredChange(NamedTuple):
    """One write: the object before and after it, None where there was none."""

    version: int
    key: ObjectKey
    before: Json | None
    after: Json | None


Listener = Callable[[StoredChange], None]


class ObjectStore:
    """All objects of a cluster, by kind. `listeners` are called after each write, in order."""

    def __init__(self, name: str, draw: random.Random) -> None:
        self.name = name
        self.version = 1
        self.listeners: list[Listener] = []
        self.changes: list[StoredChange] = []
        # The changes up to this version are not kept any more.
        self.compacted = 0
        # A watch that began before this version expires, even if its kind has no changes.
        self._expired = 0
        self._latest: dict[tuple[str, str], int] = {}
        self._draw = draw
        self._objects: defaultdict[tuple[str, str], dict[tuple[str, str], Json]] = defaultdict(dict)
        self._dependents: defaultdict[str, dict[ObjectKey, None]] = defaultdict(dict)

    # Reading

    def get(self, key: ObjectKey) -> Json | None:
        """Return a stored object."""
        return self._objects[key.group, key.kind].get((key.namespace, key.name))

    def all_of(self, kind: str, namespace: str = "") -> Iterator[Json]:
        """Return the objects of a kind in any group, in the order of creation."""
        for (_, name), objects in list(self._objects.items()):
            if name == kind:
                yield from [
                    item
                    for (where, _), item in objects.items()
                    if not namespace or where == namespace
                ]

    def find(self, group: str, kind: str, namespace: str = "") -> list[Json]:
        """List the objects of a kind."""
        objects = self._objects[group, kind]
        return [item for (where, _), item in objects.items() if not namespace or where == namespace]

    def dependents(self, uid: str) -> list[ObjectKey]:
        """Return the objects that name an owner."""
        return list(self._dependents.get(uid, ()))

    def everything(self) -> Iterator[Json]:
        """Return all objects."""
        for objects in list(self._objects.values()):
            yield from list(objects.values())

    # Writes of clients

    def apply(self, manifest: Json, manager: str, *, dry_run: bool = False) -> Json:
        """Apply server-side, taking over fields of others."""
        key = ObjectKey.of(ObjectId.of(manifest))
        live = self.get(key)
        wanted = fields.content(manifest)
        owned = fields.field_set(wanted)
        entries = (live or {}).get("metadata", {}).get("managedFields", ())
        mine = next((each for each in entries if _is_apply_of(each, manager)), None)
        others = [each for each in entries if each is not mine]
        before = fields.content(live or {})
        after = fields.merged(before, wanted)
        if mine is not None:
            dropped = fields.minus(mine["fieldsV1"], owned)
            for each in others:
                dropped = fields.minus(dropped, each["fieldsV1"])
            after = fields.without(after, dropped)
        taken = fields.changed(before, after)
        others = fields.managers(others, taken) if live else []
        if live is not None and mine is not None and mine["fieldsV1"] == owned and after == before:
            return live
        entry = {
            "manager": manager,
            "operation": "Apply",
            "apiVersion": manifest["apiVersion"],
            "fieldsV1": owned,
        }
        stored = self._assembled(key, manifest["apiVersion"], live, after, [entry, *others])
        if not dry_run:
            self._check_immutable(live, stored)
            self._put(key, stored)
            return self.get(key) or stored
        return stored

    def create(self, manifest: Json, manager: str) -> Json | None:
        """Create an object; None if the name is taken."""
        target = ObjectId.of(manifest)
        key = ObjectKey.of(target)
        if self.get(key) is not None:
            return None
        content = fields.merged({}, fields.content(manifest))
        entry = {
            "manager": manager,
            "operation": "Update",
            "apiVersion": manifest["apiVersion"],
            "fieldsV1": fields.field_set(content),
        }
        stored = self._assembled(key, manifest["apiVersion"], None, content, [entry])
        if "status" in manifest:
            stored["status"] = fields.copied(manifest["status"])
        self._put(key, stored)
        return self.get(key) or stored

    def replace(self, manifest: Json, manager: str) -> Json | None:
        """Replace an object of the resource version that the manifest has; None otherwise."""
        key = ObjectKey.of(ObjectId.of(manifest))
        live = self.get(key)
        if live is None or live["metadata"]["resourceVersion"] != manifest["metadata"].get(
            "resourceVersion"
        ):
            return None
        return self._updated(key, live, fields.copied(fields.content(manifest)), manager)

    def edit(
        self, key: ObjectKey, change: Callable[[Json], Json], manager: str = HANDS
    ) -> Json | None:
        """Change the content of an object as a person with kubectl does; None if there is none."""
        live = self.get(key)
        return (
            None
            if live is None
            else self._updated(key, live, change(fields.copied(fields.content(live))), manager)
        )

    def delete(
        self,
        key: ObjectKey,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Background",
        grace_seconds: int | None = None,
    ) -> bool:
        """Request deletion. Return False if the object does not exist or differs."""
        live = self.get(key)
        if live is None:
            return False
        metadata = live["metadata"]
        if (uid and metadata["uid"] != uid) or (
            resource_version and metadata["resourceVersion"] != resource_version
        ):
            return False
        finalizers = [
            each for each in metadata.get("finalizers", ()) if each not in (FOREGROUND, ORPHAN)
        ]
        if propagation == "Foreground":
            finalizers.append(FOREGROUND)
        elif propagation == "Orphan":
            finalizers.append(ORPHAN)
        grace = 0
        if (
            key.kind == "Pod"
            and not _has_ended(live)
            and (live["spec"].get("nodeName") or grace_seconds)
        ):
            given = live["spec"].get("terminationGracePeriodSeconds", _GRACE_SECONDS)
            grace = int(given if grace_seconds is None else grace_seconds)
        if grace_seconds == 0 and key.kind == "Pod":
            grace = 0
        if (
            not finalizers
            and not grace
            and key.kind not in ("Namespace", "CustomResourceDefinition")
        ):
            self._remove(key)
            return True
        ends = clock.timestamp(clock.utc_now() + timedelta(seconds=grace))
        known = metadata.get("deletionTimestamp")
        marked = {**metadata, "deletionTimestamp": min(known, ends) if known else ends}
        if finalizers:
            marked["finalizers"] = finalizers
        elif "finalizers" in marked:
            del marked["finalizers"]
        if not known or marked != metadata:
            self._put(key, {**live, "metadata": marked})
        return True

    # Writes of controllers

    def set_status(self, key: ObjectKey, **parts: Any) -> Json | None:
        """Change parts of a status; nothing is written if they are so already."""
        live = self.get(key)
        if live is None:
            return None
        status = {**live.get("status", {}), **parts}
        if status == live.get("status"):
            return live
        stored = {**live, "status": status}
        self._put(key, stored)
        return self.get(key)

    def set_spec(self, key: ObjectKey, **parts: Any) -> None:
        """Change parts of a spec as a controller does, such as the node of a pod."""
        live = self.get(key)
        if live is not None and any(
            live.get("spec", {}).get(name) != value for name, value in parts.items()
        ):
            self._put(key, {**live, "spec": {**live.get("spec", {}), **parts}})

    def set_finalizers(self, key: ObjectKey, finalizers: list[str]) -> None:
        """Change the finalizers; an object that is being deleted goes with the last one."""
        live = self.get(key)
        if live is None or live["metadata"].get("finalizers", []) == finalizers:
            return
        metadata = {**live["metadata"], "finalizers": finalizers}
        if not finalizers:
            del metadata["finalizers"]
        self._put(key, {**live, "metadata": metadata})
        # A pod that runs is removed by its kubelet, when its containers have ended.
        runs = key.kind == "Pod" and live["spec"].get("nodeName") and not _has_ended(live)
        if not finalizers and metadata.get("deletionTimestamp") and not runs:
            self._remove(key)

    def orphan(self, key: ObjectKey, owner_uid: str) -> None:
        """Remove an owner from an object."""
        live = self.get(key)
        if live is not None:
            kept = [
                each
                for each in live["metadata"].get("ownerReferences", ())
                if each["uid"] != owner_uid
            ]
            self._put(key, {**live, "metadata": {**live["metadata"], "ownerReferences": kept}})

    def remove(self, key: ObjectKey) -> None:
        """Remove an object whose deletion is complete."""
        if self.get(key) is not None:
            self._remove(key)

    def compact(self) -> None:
        """Forget all changes: every watch expires."""
        self.compacted = self._expired = self.version
        self.changes.clear()

    def has_expired(self, group: str, kind: str, version: int) -> bool:
        """Return whether a watch of a kind cannot go on from a version.

        Bookmarks keep a watch current while nothing of its kind changes.
        """
        return version < self._expired or (
            version < self.compacted and version < self._latest.get((group, kind), 0)
        )

    # Inside

    def _updated(self, key: ObjectKey, live: Json, content: Json, manager: str) -> Json:
        before = fields.content(live)
        if content == before:
            return live
        changed, gone = fields.changed(before, content), fields.removed(before, content)
        entries = fields.managers(
            live["metadata"].get("managedFields", ()), fields.union(changed, gone)
        )
        mine = next(
            (
                each
                for each in entries
                if each["manager"] == manager and each["operation"] == "Update"
            ),
            None,
        )
        others = [each for each in entries if each is not mine]
        owned = fields.union(mine["fieldsV1"], changed) if mine else changed
        entry = {
            "manager": manager,
            "operation": "Update",
            "apiVersion": live["apiVersion"],
            "fieldsV1": owned,
        }
        stored = self._assembled(
            key, live["apiVersion"], live, content, [*others, entry] if owned else others
        )
        self._check_immutable(live, stored)
        self._put(key, stored)
        if stored["metadata"].get("deletionTimestamp") and not stored["metadata"].get("finalizers"):
            self.remove(key)
        return self.get(key) or stored

    def _assembled(
        self,
        key: ObjectKey,
        api_version: str,
        live: Json | None,
        content: Json,
        managed: list[Json],
    ) -> Json:
        kept = (live or {}).get("metadata", {})
        spec = {name: value for name, value in content.items() if name != "metadata"}
        known = {
            name: value for name, value in fields.content(live or {}).items() if name != "metadata"
        }
        metadata = {
            "name": key.name,
            **({"namespace": key.namespace} if key.namespace else {}),
            "uid": kept.get("uid") or f"{self._draw.getrandbits(64):016x}-{self.name}",
            "creationTimestamp": kept.get("creationTimestamp") or clock.timestamp(clock.utc_now()),
            "generation": kept.get("generation", 0) + (spec != known or not live),
            "resourceVersion": kept.get("resourceVersion", ""),
            **(
                {"deletionTimestamp": kept["deletionTimestamp"]}
                if "deletionTimestamp" in kept
                else {}
            ),
            **content.get("metadata", {}),
            "managedFields": managed,
        }
        stored = {"apiVersion": api_version, "kind": key.kind, "metadata": metadata, **spec}
        if live and "status" in live:
            stored["status"] = live["status"]
        return stored

    def _check_immutable(self, live: Json | None, stored: Json) -> None:
        if live is None:
            return
        if stored["kind"] == "StorageClass" and _without_metadata(live) != _without_metadata(
            stored
        ):
            raise RequestRefused(422, "updates to StorageClass fields are forbidden")
        if stored["kind"] == "Deployment" and live["spec"].get("selector") != stored["spec"].get(
            "selector"
        ):
            raise RequestRefused(422, "spec.selector: field is immutable")
        if stored["kind"] == "PersistentVolumeClaim":
            names = ("accessModes", "storageClassName", "volumeName")
            if any(
                live["spec"].get(name) not in (None, stored["spec"].get(name)) for name in names
            ):
                raise RequestRefused(
                    422, "spec is immutable after creation except resources.requests"
                )

    def _put(self, key: ObjectKey, stored: Json) -> None:
        objects = self._objects[key.group, key.kind]
        before = objects.get((key.namespace, key.name))
        self.version += 1
        stored = {
            **stored,
            "metadata": {**stored["metadata"], "resourceVersion": str(self.version)},
        }
        objects[key.namespace, key.name] = stored
        self._index(key, before, stored)
        self._record(StoredChange(self.version, key, before, stored))

    def _remove(self, key: ObjectKey) -> None:
        before = self._objects[key.group, key.kind].pop((key.namespace, key.name))
        self.version += 1
        self._index(key, before, None)
        self._record(StoredChange(self.version, key, before, None))

    def _index(self, key: ObjectKey, before: Json | None, after: Json | None) -> None:
        old = {
            each["uid"] for each in (before or {}).get("metadata", {}).get("ownerReferences", ())
        }
        new = [each["uid"] for each in (after or {}).get("metadata", {}).get("ownerReferences", ())]
        for uid in sorted(old.difference(new)):
            self._dependents[uid].pop(key, None)
        for uid in new:
            self._dependents[uid][key] = None

    def _record(self, change: StoredChange) -> None:
        self._latest[change.key.group, change.key.kind] = change.version
        self.changes.append(change)
        if len(self.changes) > _HISTORY_MAX:
            half = self.changes[: _HISTORY_MAX // 2]
            self.compacted = half[-1].version
            del self.changes[: len(half)]
        for listener in self.listeners:
            listener(change)


def matches(item: Mapping[str, Any], selector: str) -> bool:
    """Return whether an object has the labels of a selector: `a=b`, `a`, `!a`, `a in (b,c)`."""
    marks = item["metadata"].get("labels") or {}
    return all(_holds(marks, each) for each in _parts(selector))


def has_fields(item: Mapping[str, Any], selector: str) -> bool:
    """Return whether the fields of an object have these values."""
    return all(
        _value(item, path.split(".")) == value
        for path, _, value in (each.partition("=") for each in selector.split(",") if each)
    )


def in_version(item: Json, kind: GroupVersionKind) -> Json:
    """Return an object as a version of its API serves it."""
    return (
        item if item["apiVersion"] == kind.api_version else {**item, "apiVersion": kind.api_version}
    )


@cache
def _parts(selector: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for letter in selector:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append(current)
            current = ""
        else:
            current += letter
    return [each.strip() for each in (*parts, current) if each.strip()]


def _holds(marks: Mapping[str, str], part: str) -> bool:
    if part.startswith("!"):
        return part[1:] not in marks
    if " in " in part:
        name, _, values = part.partition(" in ")
        return marks.get(name) in [each.strip() for each in values.strip("() ").split(",")]
    name, equal, value = part.partition("=")
    return marks.get(name) == value if equal else name in marks


def _value(item: Any, path: list[str]) -> Any:
    for name in path:
        item = item.get(name) if isinstance(item, Mapping) else None
    return item


def _is_apply_of(entry: Json, manager: str) -> bool:
    return bool(entry["manager"] == manager and entry["operation"] == "Apply")


def _has_ended(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _without_metadata(item: Json) -> Json:
    return {name: value for name, value in item.items() if name not in ("metadata", "status")}
