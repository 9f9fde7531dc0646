"""The nodes that replicas are charged with, counted once.

Every replica, reserved, bound or releasing, is one entry, found by its uid, by its deployment and by its cluster; no decision scans the
replicas of other deployments. Charges are kept per (cluster, pool) by name, so a pool that disappears charges nothing and charges again
when it is published once more.

A deployment may put a new replica onto nodes that a releasing one of its own still holds. The new entry then says how many nodes it
reuses (`reuse`), and until the old entry is removed the two are charged once for them; other deployments do not see those nodes as free.

A fork reads through to its parent and keeps its own changes: a whole batch is decided on a fork, and the ledger itself does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from scheduler.hardware.template import charges
from scheduler.model.identity import Owner
from scheduler.model.inputs import LedgerEntry
from scheduler.model.reasons import RELEASING

Group = tuple[str, str, str]
_NONE: Mapping[str, LedgerEntry] = {}
_NOTHING: Mapping[str, int] = {}


class ReleasingNodes(NamedTuple):
    """Nodes of one pool that releasing replicas of a deployment hold, and how many of them its new replicas reuse already."""

    nodes: int
    reused: int

    @property
    def reusable(self) -> int:
        """How many are left to reuse; the others are charged to the replicas that reuse them."""
        return max(0, self.nodes - self.reused)


NO_RELEASING_NODES = ReleasingNodes(0, 0)


class Ledger:
    """Entries and the charges that follow from them."""

    __slots__ = ("_clusters", "_entries", "_names", "_owners", "_parent", "_releasing", "_used", "_with_anti_affinity", "freed", "touched")

    def __init__(self, parent: Ledger | None = None) -> None:
        self._parent = parent
        self._entries: dict[str, LedgerEntry | None] = {}
        self._owners: dict[Owner, dict[str, LedgerEntry]] = {}
        self._clusters: dict[str, dict[str, LedgerEntry]] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._names: dict[str, dict[str, None]] = {}
        self._with_anti_affinity: dict[str, LedgerEntry] = {}
        # (namespace, deployment, cluster) -> pool -> nodes. Only where there are any.
        self._releasing: dict[Group, dict[str, ReleasingNodes]] = {}
        # Clusters where nodes were freed, in order; a cache of full clusters reads on from where it stopped.
        self.freed: list[str] = []
        self.touched: set[str] = set()

    def fork(self) -> Ledger:
        """Give a ledger that starts equal to this one and changes alone."""
        return Ledger(self)

    # Reading

    def get(self, uid: str) -> LedgerEntry | None:
        """Find an entry by the replica's uid."""
        if uid in self._entries:
            return self._entries[uid]
        return self._parent.get(uid) if self._parent else None

    @property
    def size(self) -> int:
        """The number of entries; of a fork it takes a walk over all of them."""
        return len(self._entries) if self._parent is None else sum(1 for _ in self.entries())

    def entries(self) -> Iterator[LedgerEntry]:
        """Give all entries, in no meaningful order."""
        if self._parent:
            yield from (entry for entry in self._parent.entries() if entry.uid not in self._entries)
        yield from (entry for entry in self._entries.values() if entry is not None)

    def owned(self, namespace: str, deployment: str) -> Mapping[str, LedgerEntry]:
        """Give a deployment's entries by uid."""
        owner = (namespace, deployment)
        if owner in self._owners:
            return self._owners[owner]
        return self._parent.owned(namespace, deployment) if self._parent else _NONE

    def owners(self, namespaces: Sequence[str]) -> list[Owner]:
        """Name the deployments of some namespaces that have entries, in name order."""
        known = set(self._owners)
        if self._parent:
            known.update(self._parent.owners(namespaces))
        return sorted(owner for owner in known if owner[0] in namespaces)

    def with_anti_affinity(self) -> Iterator[LedgerEntry]:
        """Give the entries of deployments with required anti-affinity."""
        if self._parent:
            yield from (entry for entry in self._parent.with_anti_affinity() if entry.uid not in self._entries)
        yield from self._with_anti_affinity.values()

    def on_cluster(self, cluster: str) -> Mapping[str, LedgerEntry]:
        """Give the entries of a cluster by uid."""
        if cluster in self._clusters:
            return self._clusters[cluster]
        return self._parent.on_cluster(cluster) if self._parent else _NONE

    def used(self, cluster: str) -> Mapping[str, int]:
        """Give the nodes charged per pool of a cluster."""
        if cluster in self._used:
            return self._used[cluster]
        return self._parent.used(cluster) if self._parent else _NOTHING

    def releasing(self, namespace: str, deployment: str, cluster: str) -> Mapping[str, ReleasingNodes]:
        """Give per pool the nodes that releasing replicas of a deployment hold there, and how many of them are reused already."""
        group = (namespace, deployment, cluster)
        if group in self._releasing:
            return self._releasing[group]
        return self._parent.releasing(namespace, deployment, cluster) if self._parent else {}

    def named(self, name: str) -> Iterator[LedgerEntry]:
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

    def put(self, entry: LedgerEntry) -> None:
        """Add an entry, or replace the one with its uid."""
        old = self.get(entry.uid)
        charged = old is not None and _charge_key(old) == _charge_key(entry)
        if old is not None:
            if not charged:
                self._charge(old, -1)
            if old.name != entry.name:
                self._own_names(old.name).pop(old.uid, None)
            if old.cluster != entry.cluster:
                self._own_cluster(old.cluster).pop(old.uid, None)
        self._entries[entry.uid] = entry
        if entry.avoids:
            self._with_anti_affinity[entry.uid] = entry
        else:
            self._with_anti_affinity.pop(entry.uid, None)
        self._own_owner((entry.namespace, entry.deployment))[entry.uid] = entry
        self._own_cluster(entry.cluster)[entry.uid] = entry
        self._own_names(entry.name)[entry.uid] = None
        if not charged:
            self._charge(entry, 1)

    def remove(self, uid: str) -> LedgerEntry | None:
        """Remove an entry and free its nodes; an unknown uid changes nothing."""
        entry = self.get(uid)
        if entry is None:
            return None
        self._charge(entry, -1)
        self._with_anti_affinity.pop(uid, None)
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
            self._end_reuse(entry)
        return entry

    def _end_reuse(self, gone: LedgerEntry) -> None:
        """Charge in full what reused the nodes of a removed replica: nodes can be reused only once."""
        group = _group(gone)
        if not any(pool.reused for pool in self.releasing(*group).values()):
            return
        promised = dict(gone.reuse)
        # Nodes that it was to reuse itself are still held by another releasing replica.
        left = {pool: nodes - promised.get(pool, 0) for pool, nodes in charges(gone.engines).items()}
        reusing = sorted(
            (e for e in self.owned(*group[:2]).values() if e.reuse and e.cluster == gone.cluster),
            key=lambda e: e.uid,
        )
        for entry in reusing:
            kept = []
            for pool, nodes in entry.reuse:
                paid = min(nodes, left.get(pool, 0))
                left[pool] = left.get(pool, 0) - paid
                if nodes > paid:
                    kept.append((pool, nodes - paid))
            self.put(replace(entry, reuse=tuple(kept)))

    def _drop_empty(self, owner: Owner, entry: LedgerEntry) -> None:
        if not self._owners.get(owner):
            self._owners.pop(owner, None)
        if not self._clusters.get(entry.cluster):
            self._clusters.pop(entry.cluster, None)
        if not self._names.get(entry.name):
            self._names.pop(entry.name, None)

    def _own_owner(self, owner: Owner) -> dict[str, LedgerEntry]:
        own = self._owners.get(owner)
        if own is None:
            own = self._owners[owner] = dict(self._parent.owned(*owner)) if self._parent else {}
        return own

    def _own_cluster(self, cluster: str) -> dict[str, LedgerEntry]:
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

    def _charge(self, entry: LedgerEntry, sign: int) -> None:
        """Add an entry's charges, or with sign -1 remove them; releasing nodes that are reused are charged once."""
        group = _group(entry)
        used = self._own_used(entry.cluster)
        is_releasing = entry.state == RELEASING
        freed = False
        for pool, nodes in charges(entry.engines).items():
            change = sign * nodes
            if is_releasing:
                change = self._shift_releasing(group, pool, sign * nodes, 0)
            freed = freed or change < 0
            _add(used, pool, change)
        for pool, nodes in entry.reuse:
            change = self._shift_releasing(group, pool, 0, sign * nodes)
            freed = freed or change < 0
            _add(used, pool, change)
        if freed:
            self.freed.append(entry.cluster)

    def _shift_releasing(self, group: Group, pool: str, releasing: int, reused: int) -> int:
        own = self._releasing.get(group)
        if own is None:
            own = self._releasing[group] = dict(self._parent.releasing(*group)) if self._parent else {}
        old = own.get(pool, NO_RELEASING_NODES)
        new = ReleasingNodes(old.nodes + releasing, old.reused + reused)
        if new == NO_RELEASING_NODES:
            own.pop(pool, None)
            if not own and not self._parent:
                del self._releasing[group]
        else:
            own[pool] = new
        return new.reusable - old.reusable

    # Checking

    def differences(self, other: Ledger) -> list[str]:
        """Compare the charges of two ledgers, pool by pool, and their entries, uid by uid."""
        found = []
        for cluster in sorted({*self._used, *other._used}):  # same class
            own, recounted = _nonzero(self.used(cluster)), _nonzero(other.used(cluster))
            found += [
                f"{cluster}/{pool}: {own.get(pool, 0)} nodes charged, {recounted.get(pool, 0)} by recount"
                for pool in sorted({*own, *recounted})
                if own.get(pool, 0) != recounted.get(pool, 0)
            ]
        own_entries = {entry.uid: entry for entry in self.entries()}
        other_entries = {entry.uid: entry for entry in other.entries()}
        found += [
            f"replica {uid}: {own_entries.get(uid)} against {other_entries.get(uid)}"
            for uid in sorted({*own_entries, *other_entries})
            if own_entries.get(uid) != other_entries.get(uid)
        ]
        for owner in sorted({*self._owners, *other._owners}):  # same class
            if set(self.owned(*owner)) != set(other.owned(*owner)):
                found.append(f"deployment {'/'.join(owner)}: its index lists other replicas than the entries do")
        return found


def rebuilt(entries: Iterable[LedgerEntry]) -> Ledger:
    """Build a ledger from entries alone."""
    ledger = Ledger()
    for entry in entries:
        ledger.put(entry)
    return ledger


def _group(entry: LedgerEntry) -> Group:
    """Name the deployment that may reuse an entry's nodes while it is releasing: its own, or the one it was preempted for."""
    namespace, deployment = entry.nominated_for or (entry.namespace, entry.deployment)
    return (namespace, deployment, entry.cluster)


def _charge_key(entry: LedgerEntry) -> tuple[object, ...]:
    """Give what the charges of an entry, and its indices, depend on."""
    return (entry.cluster, entry.name, entry.state == RELEASING, entry.reuse, entry.engines, entry.nominated_for)


def _add(used: dict[str, int], pool: str, change: int) -> None:
    total = used.get(pool, 0) + change
    if total:
        used[pool] = total
    else:
        used.pop(pool, None)


def _nonzero(used: Mapping[str, int]) -> dict[str, int]:
    return {pool: nodes for pool, nodes in used.items() if nodes}
