"""The objects of the fleet as they were last seen, in memory, and who wants to know of changes.

An object has the resource version that its workflow gave it: microseconds since 1970 when it last changed. So versions of different objects
can be compared, every front gives the same ones, and a watch goes on after a restart. A watch does not get every state between, as one that
was interrupted never does: a watcher that is slow gets the last one. So nothing is kept per watcher but which objects have changed.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from api_types.clock import utc_now
from client.refs.tree import FOR_PROGRAMS
from front.applying.annotation import revealed

Tree = dict[str, Any]

TOMBSTONES_MAX = 10_000
"""Deleted objects that are remembered, for watches that go on."""
LATE_MICROSECONDS = 10_000_000
"""How much later than another change an earlier one may be seen: visibility promises no order."""
OTHER_FRONT_MICROSECONDS = 1_000_000
"""How much later another front may see a change than this one, from which a client comes that goes on here."""

_ANY = 2**63


class Key(NamedTuple):
    """One object. `namespace` is empty for cluster-scoped kinds."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class Stored:
    """An object, or the last that was known of one that is gone.

    `relabelled`: its version when its labels were last changed, and `labels_before` those of before; 0 while that was never seen.
    `labels_since`: its version when it was first seen with the labels that it has.
    `first`: its version when it was first seen; of one that was there before this program, the second in which it was created.
    `since`: from which version on a client may know an object of this name, also by another front; 0 if that is not known.
    `behind`: the newest version of all objects that was known before this state was; one that is greater shows that this was seen late.
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
        """Give it as JSON, which is made once, however many watches tell of it."""
        return json.dumps(self.tree, separators=(",", ":")).encode()

    @property
    def labels(self) -> Mapping[str, str]:
        """Give its labels."""
        found: Mapping[str, str] = self.tree["metadata"].get("labels") or {}
        return found

    @property
    def uid(self) -> str:
        """Give its uid; empty while only its name is known."""
        return str(self.tree["metadata"].get("uid") or "")


@dataclass(eq=False)
class Watcher:
    """The changes of one kind that a watch has not told yet; `wake` is set while there are any."""

    kind: str
    changed: dict[Key, Stored] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, key: Key, stored: Stored) -> None:
        """Note a change."""
        self.changed[key] = stored
        self.wake.set()

    async def take(self, seconds: float) -> list[tuple[Key, Stored]]:
        """Wait for changes, and take them in the order of their versions; none if there are none in time."""
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
    """Changes since the wanted version are not known any more: the watcher has to list again."""


class Projection:
    """All objects that run.

    `high` is the newest version that was seen, `low` the oldest from which a watch can go on, `complete` whether all objects were listed.
    """

    def __init__(self) -> None:
        self._objects: dict[str, dict[Key, Stored]] = {}
        self._tombstones: dict[Key, Stored] = {}
        self._watchers: set[Watcher] = set()
        self.high = 0
        self.low = 0
        self.complete = False
        # What runs and was never read.
        self.unread: set[Key] = set()

    # --- reading ----------------------------------------------------------------------------------------------------------------------

    def get(self, key: Key) -> Stored | None:
        """Give an object that runs."""
        return self._objects.get(key.kind, {}).get(key)

    def of_kind(self, kind: str) -> dict[Key, Stored]:
        """Give all objects of a kind."""
        return self._objects.get(kind, {})

    def all_keys(self) -> Iterator[Key]:
        """Give the keys of all objects."""
        for held in self._objects.values():
            yield from held

    def changed_since(self, kind: str, version: int) -> list[tuple[Key, Stored]]:
        """Give what whoever knows all up to a version may not know. Raises `Expired`.

        Changes before it were perhaps seen late here. And where a version of just now comes from another front, as it may if a list and a
        watch go through an API server, that one had perhaps not seen all of the last moment before it, which is told again.
        """
        if version < self.low:
            raise Expired
        held = [*((key, stored) for key, stored in self._tombstones.items() if key.kind == kind), *self.of_kind(kind).items()]
        again = version - OTHER_FRONT_MICROSECONDS if version > utc_now().timestamp() * 1e6 - LATE_MICROSECONDS else version
        news = (item for item in held if _is_news(item[1], version) or again < item[1].version < version)
        return sorted(news, key=lambda item: item[1].version)

    def watch(self, kind: str) -> Watcher:
        """Begin to note changes of a kind; `unwatch` ends it."""
        watcher = Watcher(kind)
        self._watchers.add(watcher)
        return watcher

    def unwatch(self, watcher: Watcher) -> None:
        """Note no more changes."""
        self._watchers.discard(watcher)

    # --- writing ----------------------------------------------------------------------------------------------------------------------

    def put(self, key: Key, tree: Tree) -> Stored:
        """Note an object as its workflow describes it; an older state than the known one is ignored. Gives what is known now."""
        version = version_of(tree)
        before = self.get(key)
        if before and before.uid == tree["metadata"].get("uid") and (version < before.version or tree == before.tree):
            return before
        buried = self._tombstones.get(key)
        if buried and buried.uid and buried.uid == tree["metadata"].get("uid") and version <= buried.version:
            # What was asked before its workflow ended is answered late.
            return buried
        self._tombstones.pop(key, None)
        self.unread.discard(key)
        first = version if self.complete else _created(tree)
        since = self._since(before or buried, tree)
        stored = _following(before, Stored(tree, version, first=first, since=since, behind=self._behind(), labels_since=version))
        self._objects.setdefault(key.kind, {})[key] = stored
        self._tell(key, stored)
        return stored

    def answered(self, key: Key, known: Stored | None, tree: Tree) -> Stored:
        """Note what a workflow answered, and give what is known now. `known`: what was when it was asked.

        What is of the object before the present one, which was created after that was asked, is ignored.
        """
        present = self.get(key)
        if present and present.uid not in (tree["metadata"].get("uid"), known.uid if known else ""):
            return present
        return self.put(key, tree)

    def remove(self, key: Key, version: int) -> None:
        """Note that an object is gone since a version."""
        self.unread.discard(key)
        before = self._objects.get(key.kind, {}).pop(key, None)
        if before is None:
            return
        metadata = {**before.tree["metadata"], "resourceVersion": str(max(version, before.version + 1))}
        gone = {**before.tree, "metadata": metadata}
        stored = replace(before, tree=gone, version=int(metadata["resourceVersion"]), gone=True, behind=self._behind())
        self._bury(key, stored)
        self._tell(key, stored)

    def bury(self, key: Key, tree: Tree, version: int) -> None:
        """Note an object that was gone before this program started, or before it was seen. `tree`: its names, and when it was created."""
        buried = self._tombstones.get(key)
        if self.get(key) is None and (buried is None or buried.version < version):
            stored = Stored(tree, version, gone=True, since=self._since(buried, tree), behind=self._behind())
            self._bury(key, stored)
            self._tell(key, stored)

    def _since(self, known: Stored | None, tree: Tree) -> int:
        # Before what is read at the start there may have been others of its name.
        created = (_created(tree) or version_of(tree)) if self.complete else 0
        return known.since if known else min(created, version_of(tree))

    def _behind(self) -> int:
        # Of what is read at the start nobody knows when it was seen first.
        return self.high if self.complete else _ANY

    def _bury(self, key: Key, stored: Stored) -> None:
        self._tombstones.pop(key, None)
        self._tombstones[key] = stored
        while len(self._tombstones) > TOMBSTONES_MAX:
            oldest = next(iter(self._tombstones))
            self.low = max(self.low, self._tombstones.pop(oldest).version)

    def _tell(self, key: Key, stored: Stored) -> None:
        self.high = max(self.high, stored.version)
        for watcher in self._watchers:
            if watcher.kind == key.kind:
                watcher.add(key, stored)


def _is_news(stored: Stored, version: int) -> bool:
    is_late = stored.behind >= version and (stored.behind < _ANY or stored.version > version - LATE_MICROSECONDS)
    return stored.version > version or is_late


def _following(before: Stored | None, stored: Stored) -> Stored:
    if before is None or before.uid != stored.uid:
        return stored
    stored = replace(stored, first=before.first)
    if before.labels == stored.labels:
        return replace(stored, relabelled=before.relabelled, labels_since=before.labels_since, labels_before=before.labels_before)
    return replace(stored, relabelled=stored.version, labels_before=before.labels)


def version_of(tree: Tree) -> int:
    """Give the resource version of an object; 0 for one that has none yet."""
    text = str(tree["metadata"].get("resourceVersion") or "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _created(tree: Tree) -> int:
    try:
        return int(datetime.fromisoformat(str(tree["metadata"].get("creationTimestamp") or "")).timestamp() * 1_000_000)
    except ValueError:
        return 0


def shown(tree: Tree) -> Tree:
    """Give an object as users see it, without what only commands need of a workflow's answer, and with the owners of its fields."""
    return revealed({field: value for field, value in tree.items() if field not in FOR_PROGRAMS})
