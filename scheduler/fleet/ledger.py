"""The ledger of replicas and the nodes they are charged with.

Every reserved, bound or releasing replica is one entry, indexed by uid, deployment and
cluster. No decision scans the replicas of other deployments. `charged_nodes` counts the
nodes. A fork reads through to its parent and stores its own changes: a whole batch is
decided on a fork, so the ledger itself does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from scheduler.fleet.change_log import Change, ChangeLog
from scheduler.fleet.charged_nodes import (
    ChargedNodes,
    charge_key,
    leaves_for,
    reusing_group,
)
from scheduler.fleet.neighbours import Neighbours
from scheduler.hardware.charged_devices import ClusterLoad
from scheduler.hardware.template import charges
from scheduler.model.identity import Owner
from scheduler.model.inputs import LedgerEntry, PoolView
from scheduler.model.reasons import RELEASING

_NONE: Mapping[str, LedgerEntry] = {}


class Ledger:
    """Entries and the charges that follow from them.

    `freed`, `touched`, `used` and `releasing` belong to its `ChargedNodes`. `changes`
    lists the entries that were put and removed here.
    """

    __slots__ = (
        "_charged_nodes",
        "_clusters",
        "_entries",
        "_loads",
        "_names",
        "_nominated",
        "_owners",
        "_parent",
        "changes",
        "freed",
        "neighbours",
        "releasing",
        "touched",
        "used",
    )

    def __init__(self, parent: Ledger | None = None) -> None:
        self._parent = parent
        self._entries: dict[str, LedgerEntry | None] = {}
        self._owners: dict[Owner, dict[str, LedgerEntry]] = {}
        self._clusters: dict[str, dict[str, LedgerEntry]] = {}
        self._names: dict[str, dict[str, None]] = {}
        # Only the clusters that were read.
        self._loads: dict[str, ClusterLoad] = {}
        # Releasing entries by the deployment they were preempted for. A fork has only
        # those that it has read or changed.
        self._nominated: dict[Owner, dict[str, LedgerEntry]] = {}
        self.changes = ChangeLog[Change]()
        self.neighbours: Neighbours = Neighbours(parent.neighbours if parent else None)
        self._charged_nodes: ChargedNodes = ChargedNodes(
            parent._charged_nodes if parent else None  # noqa: SLF001  # same class
        )
        self.freed = self._charged_nodes.freed
        self.touched = self._charged_nodes.touched
        # Bound directly for speed: a decision calls them for every cluster that it
        # tries.
        self.used = self._charged_nodes.used
        self.releasing = self._charged_nodes.releasing

    def fork(self) -> Ledger:
        """Return a ledger that starts equal to this one and changes independently."""
        return Ledger(self)

    # Reading

    def get(self, uid: str) -> LedgerEntry | None:
        if uid in self._entries:
            return self._entries[uid]
        return self._parent.get(uid) if self._parent else None

    @property
    def size(self) -> int:
        """Return the number of entries; a fork counts them by iteration."""
        return (
            len(self._entries)
            if self._parent is None
            else sum(1 for _ in self.entries())
        )

    def entries(self) -> Iterator[LedgerEntry]:
        """Iterate over all entries, unordered."""
        if self._parent:
            yield from (
                entry
                for entry in self._parent.entries()
                if entry.uid not in self._entries
            )
        yield from (entry for entry in self._entries.values() if entry is not None)

    def owned(self, namespace: str, deployment: str) -> Mapping[str, LedgerEntry]:
        """Return a deployment's entries by uid."""
        owner = (namespace, deployment)
        if owner in self._owners:
            return self._owners[owner]
        return self._parent.owned(namespace, deployment) if self._parent else _NONE

    def owners(self, namespaces: Sequence[str]) -> list[Owner]:
        """Return the deployments of some namespaces that have entries, in name order."""
        known = set(self._owners)
        if self._parent:
            known.update(self._parent.owners(namespaces))
        return sorted(owner for owner in known if owner[0] in namespaces)

    def on_cluster(self, cluster: str) -> Mapping[str, LedgerEntry]:
        """Return the entries of a cluster by uid."""
        if cluster in self._clusters:
            return self._clusters[cluster]
        return self._parent.on_cluster(cluster) if self._parent else _NONE

    def load(self, cluster: str, pools: Sequence[PoolView]) -> ClusterLoad:
        """Return the devices charged to a cluster's pools; do not change them."""
        if self._parent and cluster not in self._clusters:
            return self._parent.load(cluster, pools)
        known = self._loads.get(cluster)
        if known is None or known.pools is not pools:
            entries = self.on_cluster(cluster)
            known = ClusterLoad(pools, entries.values())
            if entries:
                self._loads[cluster] = known
        return known

    def predecessors(self, owner: Owner, cluster: str) -> tuple[str, ...]:
        """Return the replicas whose nodes a new replica of this owner may reuse.

        The new replica must wait until their objects are gone.
        """
        releasing = [
            entry for entry in self._nearest(owner, cluster) if entry.state == RELEASING
        ]
        found = {
            entry.uid
            for entry in releasing
            if owner in ((entry.namespace, entry.deployment), entry.nominated_for)
        }
        return tuple(sorted(found))

    def nominated_for(self, owner: Owner) -> Mapping[str, LedgerEntry]:
        """Return the releasing entries that were preempted for a deployment, by uid.

        The deployment gets their nodes.
        """
        if owner in self._nominated:
            return self._nominated[owner]
        return self._parent.nominated_for(owner) if self._parent else _NONE

    def leaving_for(self, owner: Owner) -> Iterator[LedgerEntry]:
        """Yield the releasing entries whose nodes a deployment may reuse.

        They are its own entries and the entries preempted for it.
        """
        for entry in self.owned(*owner).values():
            if entry.state == RELEASING and entry.nominated_for in (None, owner):
                yield entry
        yield from (
            entry
            for entry in self.nominated_for(owner).values()
            if (entry.namespace, entry.deployment) != owner
        )

    def leaving_on(self, owner: Owner, cluster: str) -> list[LedgerEntry]:
        """Return the entries of `leaving_for` that are on one cluster."""
        return [
            entry for entry in self._nearest(owner, cluster) if leaves_for(entry, owner)
        ]

    def _nearest(self, owner: Owner, cluster: str) -> list[LedgerEntry]:
        """Return the entries on a cluster that an owner may reuse, and possibly others."""
        here, owned, nominated = (
            self.on_cluster(cluster),
            self.owned(*owner),
            self.nominated_for(owner),
        )
        if len(here) <= len(owned) + len(nominated):
            return list(here.values())
        # A deployment's own replica may be nominated for it too.
        return [
            entry
            for entry in {**owned, **nominated}.values()
            if entry.cluster == cluster
        ]

    def named(self, name: str) -> Iterator[LedgerEntry]:
        """Yield the entries with a replica name."""
        for uid in self._named(name):
            entry = self.get(uid)
            if entry is not None:
                yield entry

    def _named(self, name: str) -> Mapping[str, None]:
        if name in self._names:
            return self._names[name]
        if self._parent is None:
            return {}
        return self._parent._named(name)  # noqa: SLF001  # same class

    # Writing

    def put(self, entry: LedgerEntry) -> None:
        """Add an entry, or replace the entry with its uid."""
        old = self.get(entry.uid)
        charged = old is not None and charge_key(old) == charge_key(entry)
        if old is not None:
            if not charged:
                self._charge(old, -1)
            if old.name != entry.name:
                self._own_names(old.name).pop(old.uid, None)
            if old.cluster != entry.cluster:
                self._own_cluster(old.cluster).pop(old.uid, None)
        if entry.nominated_for or (old is not None and old.nominated_for):
            self._nominate(old, entry)
        self._entries[entry.uid] = entry
        self.changes.add((old, entry))
        if entry.labels or entry.avoids or old is not None:
            self.neighbours.move(old, entry)
        self._own_owner((entry.namespace, entry.deployment))[entry.uid] = entry
        self._own_cluster(entry.cluster)[entry.uid] = entry
        self._own_names(entry.name)[entry.uid] = None
        if not charged:
            self._charge(entry, 1)

    def _nominate(self, old: LedgerEntry | None, entry: LedgerEntry) -> None:
        was, becomes = _nominee(old) if old else None, _nominee(entry)
        if was and was != becomes:
            self._own_nominated(was).pop(entry.uid, None)
        if becomes:
            self._own_nominated(becomes)[entry.uid] = entry

    def _charge(self, entry: LedgerEntry, sign: int) -> None:
        self._own_cluster(entry.cluster)
        self._charged_nodes.charge(entry, sign)
        load = self._loads.get(entry.cluster)
        if load is not None:
            load.charge(entry, sign)

    def remove(self, uid: str) -> LedgerEntry | None:
        """Remove an entry and free its nodes; an unknown uid is ignored."""
        entry = self.get(uid)
        if entry is None:
            return None
        self._charge(entry, -1)
        self.changes.add((entry, None))
        if nominee := _nominee(entry):
            self._own_nominated(nominee).pop(uid, None)
        self.neighbours.move(entry, None)
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
        """Charge the replicas that reused a removed replica's nodes in full.

        Nodes can be reused only once.
        """
        group = reusing_group(gone)
        if not any(pool.reused for pool in self.releasing(*group).values()):
            return
        promised = dict(gone.reuse)
        # Another releasing replica still holds nodes that this one was going to reuse.
        left = {
            pool: nodes - promised.get(pool, 0)
            for pool, nodes in charges(gone.charged).items()
        }
        members = {**self.owned(*group[:2]), **self.nominated_for(group[:2])}
        reusing = sorted(
            (e for e in members.values() if e.reuse and reusing_group(e) == group),
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
            self._loads.pop(entry.cluster, None)
        if not self._names.get(entry.name):
            self._names.pop(entry.name, None)
        if entry.nominated_for and not self._nominated.get(entry.nominated_for):
            self._nominated.pop(entry.nominated_for, None)

    def _own_owner(self, owner: Owner) -> dict[str, LedgerEntry]:
        own = self._owners.get(owner)
        if own is None:
            own = self._owners[owner] = (
                dict(self._parent.owned(*owner)) if self._parent else {}
            )
        return own

    def _own_cluster(self, cluster: str) -> dict[str, LedgerEntry]:
        own = self._clusters.get(cluster)
        if own is None:
            own = self._clusters[cluster] = (
                dict(self._parent.on_cluster(cluster)) if self._parent else {}
            )
            if self._parent:
                load = self._parent._known_load(cluster)  # noqa: SLF001  # same class
                if load is not None:
                    self._loads[cluster] = load.copy()
        return own

    def _known_load(self, cluster: str) -> ClusterLoad | None:
        if cluster in self._clusters or self._parent is None:
            return self._loads.get(cluster)
        return self._parent._known_load(cluster)  # noqa: SLF001  # same class

    def _own_nominated(self, owner: Owner) -> dict[str, LedgerEntry]:
        own = self._nominated.get(owner)
        if own is None:
            own = self._nominated[owner] = (
                dict(self._parent.nominated_for(owner)) if self._parent else {}
            )
        return own

    def _own_names(self, name: str) -> dict[str, None]:
        own = self._names.get(name)
        if own is None:
            own = self._names[name] = dict(self._named(name))
        return own

    def differs_on(self, cluster: str, ancestor: Ledger) -> bool:
        """Return whether a ledger above the ancestor changed a cluster's entries."""
        if self is ancestor or self._parent is None:
            return False
        return cluster in self._clusters or self._parent.differs_on(cluster, ancestor)

    def changed_clusters(self, ancestor: Ledger) -> Mapping[str, None]:
        """Return the names of the clusters for which `differs_on` is true."""
        if self is ancestor or self._parent is None:
            return {}
        return {
            **self._parent.changed_clusters(ancestor),
            **dict.fromkeys(self._clusters),
        }

    # Checking

    def differences(self, other: Ledger) -> list[str]:
        """Return one sentence per difference in charges and entries."""
        found = self._charged_nodes.differences(other._charged_nodes)
        found += self.neighbours.differences(other.neighbours)
        own_entries = {entry.uid: entry for entry in self.entries()}
        other_entries = {entry.uid: entry for entry in other.entries()}
        found += [
            f"replica {uid}: {own_entries.get(uid)}, {other_entries.get(uid)} by recount"
            for uid in sorted({*own_entries, *other_entries})
            if own_entries.get(uid) != other_entries.get(uid)
        ]
        for owner in sorted({*self._owners, *other._owners}):
            if set(self.owned(*owner)) != set(other.owned(*owner)):
                found.append(
                    f"deployment {'/'.join(owner)}: its index and the ledger entries "
                    "list different replicas"
                )
        found += self._nominee_differences(own_entries)
        for cluster, load in sorted(self._loads.items()):
            recounted = ClusterLoad(load.pools, self.on_cluster(cluster).values())
            found += [
                f"{cluster}/{pool}: the charged devices differ from a recount"
                for pool in load.differences(recounted)
            ]
        return found

    def _nominee_differences(self, entries: Mapping[str, LedgerEntry]) -> list[str]:
        recounted: set[tuple[Owner, str]] = set()
        # A fork reads through to its parent, so its own index is not complete.
        nominees = set(self._nominated)
        for uid, entry in entries.items():
            nominee = _nominee(entry)
            if nominee:
                recounted.add((nominee, uid))
                nominees.add(nominee)
        indexed: set[tuple[Owner, str]] = set()
        for nominee in sorted(nominees):
            indexed.update((nominee, uid) for uid in self.nominated_for(nominee))
        return [
            f"replica {uid}: the index and the ledger entries disagree whether its "
            f"nodes are nominated for {'/'.join(owner)}"
            for owner, uid in sorted(indexed ^ recounted)
        ]


def _nominee(entry: LedgerEntry) -> Owner | None:
    """Return the deployment that a releasing replica's nodes are nominated for."""
    return entry.nominated_for if entry.state == RELEASING else None


def rebuilt(entries: Iterable[LedgerEntry]) -> Ledger:
    """Build a ledger from entries alone."""
    ledger = Ledger()
    for entry in entries:
        ledger.put(entry)
    return ledger
