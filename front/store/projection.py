"""The last known state of all objects, in memory, and the watchers of changes.

The resource version of an object is set by its workflow: the time of the last change,
in microseconds since 1970. So versions of different objects are comparable, all fronts
return the same versions, and a watch can resume after a restart. A watcher need not see
every intermediate state: a slow one gets the latest. So the projection keeps per
watcher only the set of changed objects.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from api_types.clock import utc_now
from fleet_client.refs.tree import FOR_PROGRAMS
from front.applying.annotation import revealed

Tree = dict[str, Any]

TOMBSTONES_MAX = 10_000
"""The number of deleted objects that are kept for resuming watches."""
LATE_MICROSECONDS = 10_000_000
"""The maximum delay with which a change may become visible after a later change.

Visibility does not guarantee an order.
"""
OTHER_FRONT_MICROSECONDS = 1_000_000
"""The maximum delay with which another front may see a change.

Clients of that front may resume a watch here.
"""

_ANY = 2**63


class ObjectKey(NamedTuple):
    """The key of an object. `namespace` is empty for cluster-scoped kinds."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class StoredObject:
    """An object, or the last known state of a deleted object.

    `relabelled` is the object's version at the last change of labels, and
    `labels_before` are the labels before that change; 0 and empty if no change was
    seen. `labels_since` is the version at which its current labels were first seen.
    `first` is the version at which the object was first seen; for an object that
    existed before this process, the time of its creation. `since` is the version from
    which a client may know an object of this name, perhaps from another front; 0 if
    unknown. `behind` is the newest version of all objects that was known before this
    state. If it is greater than `version`, this state was seen late.
    """

    tree: Tree
    version: int
    gone: bool = False
    first: int = 0
    since: int = 0
    behind: int = 0
    relabelled: int = 0
    labels_since: int = 0
    labels_before: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def encoded(self) -> bytes:
        """The object as JSON, encoded once for all watches."""
        return json.dumps(self.tree, separators=(",", ":")).encode()

    @property
    def labels(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.tree["metadata"].get("labels") or {}
        return found

    @property
    def uid(self) -> str:
        """The uid; empty if only the name is known."""
        return str(self.tree["metadata"].get("uid") or "")


@dataclass(eq=False)
class WatchQueue:
    """Unsent changes of one kind for one watch; `wake` is set if there are any."""

    kind: str
    changed: dict[ObjectKey, StoredObject] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, key: ObjectKey, stored: StoredObject) -> None:
        self.changed[key] = stored
        self.wake.set()

    async def take(self, seconds: float) -> list[tuple[ObjectKey, StoredObject]]:
        """Wait for changes, and take them in version order; empty after the timeout."""
        if not self.changed:
            try:
                async with asyncio.timeout(seconds):
                    await self.wake.wait()
            except TimeoutError:
                return []
        self.wake.clear()
        taken, self.changed = self.changed, {}
        return sorted(taken.items(), key=lambda item: item[1].version)


class Expired(Exception):
    """Changes since the requested version are no longer known.

    The client must list again.
    """


class Projection:
    """All existing objects.

    `high` is the newest version that was seen, `low` the oldest version from which a
    watch can resume. `complete` is True once all objects were listed.
    """

    def __init__(self) -> None:
        self._objects: dict[str, dict[ObjectKey, StoredObject]] = {}
        self._tombstones: dict[ObjectKey, StoredObject] = {}
        self._watchers: set[WatchQueue] = set()
        self.high = 0
        self.low = 0
        self.complete = False
        # Objects whose workflow runs but was never read.
        self.unread: set[ObjectKey] = set()

    # Reading

    def get(self, key: ObjectKey) -> StoredObject | None:
        """Return an existing object."""
        return self._objects.get(key.kind, {}).get(key)

    def of_kind(self, kind: str) -> dict[ObjectKey, StoredObject]:
        return self._objects.get(kind, {})

    def all_keys(self) -> Iterator[ObjectKey]:
        for held in self._objects.values():
            yield from held

    def changed_since(
        self, kind: str, version: int
    ) -> list[tuple[ObjectKey, StoredObject]]:
        """Return the changes that a client may lack if it knows all up to a version.

        Earlier changes that were seen late are included. A very recent version may come
        from another front, for example if a list and a watch go through an API server.
        That front may have missed changes of the last moment, so these are included
        too. Raises `Expired`.
        """
        if version < self.low:
            raise Expired
        held = [item for item in self._tombstones.items() if item[0].kind == kind]
        held += self.of_kind(kind).items()
        is_recent = version > utc_now().timestamp() * 1e6 - LATE_MICROSECONDS
        again = version - OTHER_FRONT_MICROSECONDS if is_recent else version
        news = (
            item
            for item in held
            if _is_news(item[1], version) or again < item[1].version < version
        )
        return sorted(news, key=lambda item: item[1].version)

    def changed_after(
        self, kind: str, version: int, selects: Callable[[ObjectKey], bool]
    ) -> bool:
        """Return whether a selected object has changed or gone since a version."""
        held = chain(self.of_kind(kind).items(), self._tombstones.items())
        return version < self.low or any(
            key.kind == kind and each.version > version and selects(key)
            for key, each in held
        )

    def watch(self, kind: str) -> WatchQueue:
        """Start to record changes of a kind; `unwatch` stops it."""
        watcher = WatchQueue(kind)
        self._watchers.add(watcher)
        return watcher

    def unwatch(self, watcher: WatchQueue) -> None:
        self._watchers.discard(watcher)

    # Writing

    def put(self, key: ObjectKey, tree: Tree) -> StoredObject:
        """Store a state from an object's workflow; return the state known now.

        A state older than the known one is ignored.
        """
        version = version_of(tree)
        before = self.get(key)
        if (
            before
            and before.uid == tree["metadata"].get("uid")
            and (version < before.version or tree == before.tree)
        ):
            return before
        buried = self._tombstones.get(key)
        if (
            buried
            and buried.uid
            and buried.uid == tree["metadata"].get("uid")
            and version <= buried.version
        ):
            # A late answer to a query that was sent before the workflow ended.
            return buried
        self._tombstones.pop(key, None)
        self.unread.discard(key)
        first = version if self.complete else _created(tree)
        since = self._since(before or buried, tree)
        stored = _following(
            before,
            StoredObject(
                tree,
                version,
                first=first,
                since=since,
                behind=self._behind(),
                labels_since=version,
            ),
        )
        self._objects.setdefault(key.kind, {})[key] = stored
        self._tell(key, stored)
        return stored

    def answered(
        self, key: ObjectKey, known: StoredObject | None, tree: Tree
    ) -> StoredObject:
        """Store the answer to a query, and return the state that is known now.

        `known` is the state at the time of the query. The answer is ignored if the
        object has been replaced by a new object of the same name since then.
        """
        present = self.get(key)
        if present and present.uid not in (
            tree["metadata"].get("uid"),
            known.uid if known else "",
        ):
            return present
        return self.put(key, tree)

    def remove(self, key: ObjectKey, version: int) -> None:
        """Record that an object is gone since a version."""
        self.unread.discard(key)
        before = self._objects.get(key.kind, {}).pop(key, None)
        if before is None:
            return
        metadata = {
            **before.tree["metadata"],
            "resourceVersion": str(max(version, before.version + 1)),
        }
        gone = {**before.tree, "metadata": metadata}
        stored = replace(
            before,
            tree=gone,
            version=int(metadata["resourceVersion"]),
            gone=True,
            behind=self._behind(),
        )
        self._bury(key, stored)
        self._tell(key, stored)

    def bury(self, key: ObjectKey, tree: Tree, version: int) -> None:
        """Record an object that was gone before it was seen.

        `tree` has its names and the time of its creation.
        """
        buried = self._tombstones.get(key)
        if self.get(key) is None and (buried is None or buried.version < version):
            stored = StoredObject(
                tree,
                version,
                gone=True,
                since=self._since(buried, tree),
                behind=self._behind(),
            )
            self._bury(key, stored)
            self._tell(key, stored)

    def _since(self, known: StoredObject | None, tree: Tree) -> int:
        # Other objects of this name may have existed before the first listing.
        created = (_created(tree) or version_of(tree)) if self.complete else 0
        return known.since if known else min(created, version_of(tree))

    def _behind(self) -> int:
        # For objects of the first listing, it is unknown when they were first seen.
        return self.high if self.complete else _ANY

    def _bury(self, key: ObjectKey, stored: StoredObject) -> None:
        self._tombstones.pop(key, None)
        self._tombstones[key] = stored
        while len(self._tombstones) > TOMBSTONES_MAX:
            oldest = next(iter(self._tombstones))
            self.low = max(self.low, self._tombstones.pop(oldest).version)

    def _tell(self, key: ObjectKey, stored: StoredObject) -> None:
        self.high = max(self.high, stored.version)
        for watcher in self._watchers:
            if watcher.kind == key.kind:
                watcher.add(key, stored)


def _is_news(stored: StoredObject, version: int) -> bool:
    is_late = stored.behind >= version and (
        stored.behind < _ANY or stored.version > version - LATE_MICROSECONDS
    )
    return stored.version > version or is_late


def _following(before: StoredObject | None, stored: StoredObject) -> StoredObject:
    if before is None or before.uid != stored.uid:
        return stored
    stored = replace(stored, first=before.first)
    if before.labels == stored.labels:
        return replace(
            stored,
            relabelled=before.relabelled,
            labels_since=before.labels_since,
            labels_before=before.labels_before,
        )
    return replace(stored, relabelled=stored.version, labels_before=before.labels)


def version_of(tree: Tree) -> int:
    """Return the resource version of an object; 0 if it has none yet."""
    text = str(tree["metadata"].get("resourceVersion") or "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _created(tree: Tree) -> int:
    text = str(tree["metadata"].get("creationTimestamp") or "")
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1_000_000)
    except ValueError:
        return 0


def shown(tree: Tree) -> Tree:
    """Return an object as users see it.

    Fields that only commands need are removed, and the owners of its fields are added.
    """
    return revealed(
        {field: value for field, value in tree.items() if field not in FOR_PROGRAMS}
    )
