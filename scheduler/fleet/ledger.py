"""Nodes promised and held, counted once.

Every replica, reserved, running or leaving, is one entry, found by its uid, by its deployment and by its cluster; no decision scans the
replicas of others. Charges are kept per (cluster, pool) by name, so a pool that disappears charges nothing and charges again when it is
published once more.

A deployment may put a new replica onto nodes that its own old one is about to leave. The new entry then says how many nodes it takes
over (`reuse`), and until the old entry is released the pair is charged once for them; nobody else sees those nodes as free.

A fork reads through to its parent and keeps its own changes: a whole batch is decided on a fork, and the ledger itself stays untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from scheduler.hardware.template import charges
from scheduler.model.identity import Owner
from scheduler.model.inputs import ReplicaView
from scheduler.model.reasons import RELEASING

Group = tuple[str, str, str]
_NONE: Mapping[str, ReplicaView] = {}
_NOTHING: Mapping[str, int] = {}


class Ledger:
    """Entries and the charges that follow from them."""

    __slots__ = ("_avoiders", "_clusters", "_entries", "_leaving", "_names", "_owners", "_parent", "_used", "freed", "touched")

    def __init__(self, parent: Ledger | None = None) -> None:
        self._parent = parent
        self._entries: dict[str, ReplicaView | None] = {}
        self._owners: dict[Owner, dict[str, ReplicaView]] = {}
        self._clusters: dict[str, dict[str, ReplicaView]] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._names: dict[str, dict[str, None]] = {}
        self._avoiders: dict[str, ReplicaView] = {}
        # (namespace, deployment, cluster) -> pool -> (nodes leaving, nodes of them taken over). Only where there are any.
        self._leaving: dict[Group, dict[str, tuple[int, int]]] = {}
        # Clusters where nodes came free, in order; who remembers full clusters reads on from where it was.
        self.freed: list[str] = []
        self.touched: set[str] = set()

    def fork(self) -> Ledger:
        """Give a ledger that starts equal to this one and changes alone."""
        return Ledger(self)

    # Reading

    def get(self, uid: str) -> ReplicaView | None:
        """Find an entry by the replica's uid."""
        if uid in self._entries:
            return self._entries[uid]
        return self._parent.get(uid) if self._parent else None

    @property
    def size(self) -> int:
        """The number of entries; of a fork it takes a walk over all of them."""
        return len(self._entries) if self._parent is None else sum(1 for _ in self.entries())

    def entries(self) -> Iterator[ReplicaView]:
        """Give all entries, in no meaningful order."""
        if self._parent:
            yield from (entry for entry in self._parent.entries() if entry.uid not in self._entries)
        yield from (entry for entry in self._entries.values() if entry is not None)

    def owned(self, namespace: str, deployment: str) -> Mapping[str, ReplicaView]:
        """Give a deployment's entries by uid."""
        owner = (namespace, deployment)
        if owner in self._owners:
            return self._owners[owner]
        return self._parent.owned(namespace, deployment) if self._parent else _NONE

    def owners(self, namespaces: Sequence[str]) -> list[Owner]:
        """Name the deployments of some namespaces that have entries, in order."""
        known = set(self._owners)
        if self._parent:
            known.update(self._parent.owners(namespaces))
        return sorted(owner for owner in known if owner[0] in namespaces)

    def with_anti_affinity(self) -> Iterator[ReplicaView]:
        """Give the entries whose deployments keep others away from them."""
        if self._parent:
            yield from (entry for entry in self._parent.with_anti_affinity() if entry.uid not in self._entries)
        yield from self._avoiders.values()

    def on_cluster(self, cluster: str) -> Mapping[str, ReplicaView]:
        """Give the entries of a cluster by uid."""
        if cluster in self._clusters:
            return self._clusters[cluster]
        return self._parent.on_cluster(cluster) if self._parent else _NONE

    def used(self, cluster: str) -> Mapping[str, int]:
        """Give the nodes charged per pool of a cluster."""
        if cluster in self._used:
            return self._used[cluster]
        return self._parent.used(cluster) if self._parent else _NOTHING

    def leaving(self, namespace: str, deployment: str, cluster: str) -> Mapping[str, tuple[int, int]]:
        """Give per pool the nodes that a deployment's leaving replicas hold there, and how many of them are taken over already."""
        group = (namespace, deployment, cluster)
        if group in self._leaving:
            return self._leaving[group]
        return self._parent.leaving(namespace, deployment, cluster) if self._parent else {}

    def named(self, name: str) -> Iterator[ReplicaView]:
        """Give the entries that carry a replica name."""
        for uid in self._named(name):
            entry = self.get(uid)
            if entry is not None:
                yield entry

    def _named(self, name: str) -> Mapping[str, None]:
        if name in self._names:
            return self._names[name]
        return self._parent._named(name) if self._parent else {}  # noqa: SLF001  # a fork and its parent are one class

    # Writing

    def put(self, entry: ReplicaView) -> None:
        """Add an entry, or replace the one with its uid."""
        old = self.get(entry.uid)
        charged = old is not None and _holds(old) == _holds(entry)
        if old is not None:
            if not charged:
                self._charge(old, -1)
            if old.name != entry.name:
                self._own_names(old.name).pop(old.uid, None)
            if old.cluster != entry.cluster:
                self._own_cluster(old.cluster).pop(old.uid, None)
        self._entries[entry.uid] = entry
        if entry.avoids:
            self._avoiders[entry.uid] = entry
        else:
            self._avoiders.pop(entry.uid, None)
        self._own_owner((entry.namespace, entry.deployment))[entry.uid] = entry
        self._own_cluster(entry.cluster)[entry.uid] = entry
        self._own_names(entry.name)[entry.uid] = None
        if not charged:
            self._charge(entry, 1)

    def remove(self, uid: str) -> ReplicaView | None:
        """Forget an entry and free its nodes; an unknown uid changes nothing."""
        entry = self.get(uid)
        if entry is None:
            return None
        self._charge(entry, -1)
        self._avoiders.pop(uid, None)
        if self._parent:
            self._entries[uid] = None
        else:
            del self._entries[uid]
        owner = (entry.namespace, entry.deployment)
        self._own_owner(owner).pop(uid, None)
        self._own_cluster(entry.cluster).pop(uid, None)
        self._own_names(entry.name).pop(uid, None)
        if not self._parent:
            self._drop_empty(owner, entry)
        if entry.state == RELEASING:
            self._settle(entry)
        return entry

    def _settle(self, gone: ReplicaView) -> None:
        """Charge in full what was taken over from a replica that is gone: its nodes can be taken over only once."""
        group = _group(gone)
        if not any(taken for _, taken in self.leaving(*group).values()):
            return
        promised = dict(gone.reuse)
        # Nodes that it was only promised itself are still held by somebody else.
        left = {pool: nodes - promised.get(pool, 0) for pool, nodes in charges(gone.engines).items()}
        nominees = sorted(
            (e for e in self.owned(*group[:2]).values() if e.reuse and e.cluster == gone.cluster),
            key=lambda e: e.uid,
        )
        for nominated_for in nominees:
            kept = []
            for pool, nodes in nominated_for.reuse:
                paid = min(nodes, left.get(pool, 0))
                left[pool] = left.get(pool, 0) - paid
                if nodes > paid:
                    kept.append((pool, nodes - paid))
            self.put(replace(nominated_for, reuse=tuple(kept)))

    def _drop_empty(self, owner: Owner, entry: ReplicaView) -> None:
        if not self._owners.get(owner):
            self._owners.pop(owner, None)
        if not self._clusters.get(entry.cluster):
            self._clusters.pop(entry.cluster, None)
        if not self._names.get(entry.name):
            self._names.pop(entry.name, None)

    def _own_owner(self, owner: Owner) -> dict[str, ReplicaView]:
        own = self._owners.get(owner)
        if own is None:
            own = self._owners[owner] = dict(self._parent.owned(*owner)) if self._parent else {}
        return own

    def _own_cluster(self, cluster: str) -> dict[str, ReplicaView]:
        own = self._clusters.get(cluster)
        if own is None:
            own = self._clusters[cluster] = dict(self._parent.on_cluster(cluster)) if self._parent else {}
        return own

    def _own_names(self, name: str) -> dict[str, None]:
        own = self._names.get(name)
        if own is None:
            own = self._names[name] = dict(self._parent._named(name)) if self._parent else {}  # noqa: SLF001  # see _named
        return own

    def _own_used(self, cluster: str) -> dict[str, int]:
        own = self._used.get(cluster)
        if own is None:
            own = self._used[cluster] = dict(self._parent.used(cluster)) if self._parent else {}
            self.touched.add(cluster)
        return own

    def _charge(self, entry: ReplicaView, sign: int) -> None:
        """Add or take back an entry's charges; a pool's charge is what stands plus what leaves without being taken over."""
        group = _group(entry)
        used = self._own_used(entry.cluster)
        leaves = entry.state == RELEASING
        freed = False
        for pool, nodes in charges(entry.engines).items():
            change = sign * nodes
            if leaves:
                change = self._shift_leaving(group, pool, sign * nodes, 0)
            freed = freed or change < 0
            _add(used, pool, change)
        for pool, nodes in entry.reuse:
            change = self._shift_leaving(group, pool, 0, sign * nodes)
            freed = freed or change < 0
            _add(used, pool, change)
        if freed:
            self.freed.append(entry.cluster)

    def _shift_leaving(self, group: Group, pool: str, leaving: int, taken: int) -> int:
        own = self._leaving.get(group)
        if own is None:
            own = self._leaving[group] = dict(self._parent.leaving(*group)) if self._parent else {}
        old_leaving, old_taken = own.get(pool, (0, 0))
        new = (old_leaving + leaving, old_taken + taken)
        if new == (0, 0):
            own.pop(pool, None)
            if not own and not self._parent:
                del self._leaving[group]
        else:
            own[pool] = new
        return _charged(*new) - _charged(old_leaving, old_taken)

    # Checking

    def audit(self) -> list[str]:
        """Rebuild from the entries and name every difference; empty when the books are right."""
        return self.differences(rebuilt(self.entries()))

    def differences(self, other: Ledger) -> list[str]:
        """Compare the charges of two ledgers, pool by pool, and their entries, uid by uid."""
        found = []
        for cluster in sorted({*self._used, *other._used}):  # same class
            mine, theirs = _nonzero(self.used(cluster)), _nonzero(other.used(cluster))
            found += [
                f"{cluster}/{pool}: {mine.get(pool, 0)} nodes charged, {theirs.get(pool, 0)} by recount"
                for pool in sorted({*mine, *theirs})
                if mine.get(pool, 0) != theirs.get(pool, 0)
            ]
        mine_entries = {entry.uid: entry for entry in self.entries()}
        their_entries = {entry.uid: entry for entry in other.entries()}
        found += [
            f"replica {uid}: {mine_entries.get(uid)} against {their_entries.get(uid)}"
            for uid in sorted({*mine_entries, *their_entries})
            if mine_entries.get(uid) != their_entries.get(uid)
        ]
        for owner in sorted({*self._owners, *other._owners}):  # same class
            if set(self.owned(*owner)) != set(other.owned(*owner)):
                found.append(f"deployment {'/'.join(owner)}: its index lists other replicas than the entries do")
        return found


def rebuilt(entries: Iterable[ReplicaView]) -> Ledger:
    """Count anew from entries alone."""
    ledger = Ledger()
    for entry in entries:
        ledger.put(entry)
    return ledger


def _group(entry: ReplicaView) -> Group:
    """Name who may build on an entry's nodes once it leaves: its own deployment, or the one it was preempted for."""
    namespace, deployment = entry.nominated_for or (entry.namespace, entry.deployment)
    return (namespace, deployment, entry.cluster)


def _holds(entry: ReplicaView) -> tuple[object, ...]:
    return (entry.cluster, entry.name, entry.state == RELEASING, entry.reuse, entry.engines, entry.nominated_for)


def _charged(leaving: int, taken: int) -> int:
    return leaving - min(leaving, taken)


def _add(used: dict[str, int], pool: str, change: int) -> None:
    total = used.get(pool, 0) + change
    if total:
        used[pool] = total
    else:
        used.pop(pool, None)


def _nonzero(used: Mapping[str, int]) -> dict[str, int]:
    return {pool: nodes for pool, nodes in used.items() if nodes}
