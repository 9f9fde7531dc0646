"""The order in which a preemption would evict the replicas of a cluster.

A search for victims may visit thousands of clusters. A visit must not sort replicas
that have not changed, and clusters that only have replicas of higher priority must not
be visited at all. So the order is updated as replicas come and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterIndex, ClusterSet, bits
from scheduler.fleet.ledger import Ledger
from scheduler.model.inputs import LedgerEntry
from scheduler.model.reasons import RELEASING

# Clusters by the lowest priority of a replica there.
Levels = Mapping[int, ClusterSet]


class VictimIndex:
    """The replicas of each cluster that are not releasing.

    They are sorted by priority, the lowest first, and within a priority the youngest
    first.
    """

    def __init__(self, index: ClusterIndex, ledger: Ledger) -> None:
        self._index = index
        self._ledger = ledger
        self._rows: dict[str, Sequence[LedgerEntry]] = {}
        self._levels: dict[int, ClusterSet] = {}
        self._epoch = -1
        # Clusters that changed since the levels were computed.
        self._stale: dict[str, None] = {}
        self._read = ledger.changes.end

    def on(self, cluster: str) -> Sequence[LedgerEntry]:
        """Return the replicas of a cluster."""
        self._catch_up()
        rows = self._rows.get(cluster)
        if rows is None:
            rows = self._rows[cluster] = in_order(self._ledger, cluster)
        return rows

    def levels(self) -> Levels:
        """Return the clusters by the lowest priority there; do not change them."""
        self._catch_up()
        if self._epoch != self._index.epoch:
            self._epoch = self._index.epoch
            ranks: dict[int, list[int]] = {}
            for info in self._index.ranked:
                rows = self.on(info.name)
                if rows:
                    ranks.setdefault(rows[0].priority, []).append(info.rank)
            self._levels = {
                priority: bits(found, len(self._index.ranked))
                for priority, found in ranks.items()
            }
        elif self._stale:
            self._levels = moved(
                self._levels,
                self._index,
                ((name, self.on(name)) for name in self._stale),
            )
        self._stale.clear()
        return self._levels

    def _catch_up(self) -> None:
        changes = self._ledger.changes
        if self._read == changes.end:
            return
        found = changes.since(self._read) if self._rows else ()
        if found is None:
            self._rows.clear()
            self._epoch = -1
        else:
            for pair in found:
                for entry in pair:
                    if (
                        entry is not None
                        and self._rows.pop(entry.cluster, None) is not None
                    ):
                        self._stale[entry.cluster] = None
        self._read = changes.end


def moved(
    levels: Levels,
    index: ClusterIndex,
    changed: Iterable[tuple[str, Sequence[LedgerEntry]]],
) -> dict[int, ClusterSet]:
    """Return the levels after the replicas of some clusters changed."""
    found = dict(levels)
    for name, rows in changed:
        info = index.clusters.get(name)
        if info is None:
            continue
        bit = 1 << info.rank
        for priority, clusters in found.items():
            if clusters & bit:
                found[priority] = ClusterSet(clusters & ~bit)
        if rows:
            found[rows[0].priority] = ClusterSet(
                found.get(rows[0].priority, NO_CLUSTERS) | bit
            )
    return found


def in_order(ledger: Ledger, cluster: str) -> list[LedgerEntry]:
    """Return a cluster's replicas that are not releasing, in the order of the index."""
    entries = [
        entry
        for entry in ledger.on_cluster(cluster).values()
        if entry.state != RELEASING
    ]
    entries.sort(
        key=lambda entry: (
            entry.priority,
            -entry.since,
            entry.namespace,
            entry.name,
            entry.uid,
        )
    )
    return entries
