"""The outcomes of a template's trials on each cluster, cached across decisions.

A trial depends on the template and the cluster alone. The fleet keeps its outcome, its
scores and the number of missing nodes. An outcome is dropped when the charges of the
cluster change or the cluster is published again. So a decision tries only clusters that
changed since the last one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from scheduler.fleet.change_log import Change
from scheduler.fleet.charged_nodes import charge_key
from scheduler.fleet.cluster_index import (
    NO_CLUSTERS,
    ClusterIndex,
    ClusterSet,
    bits,
    ranks_of,
)
from scheduler.fleet.ledger import Ledger
from scheduler.hardware.node_fitting import Trial

# Limit of the fitting clusters over all templates; each takes about 1 KiB with its
# scores. Clusters that do not fit are stored as sets, which count as `_TEMPLATE` per
# template.
_KEPT_MAX = 300_000
_TEMPLATE = 200
Key = TypeVar("Key")


class TriedClusters:
    """The outcomes of the trials of one template.

    Attributes:
        known: the clusters that were tried.
        fitting: the clusters among them that take a replica; `trials` has their
            outcomes by rank.
        failing: the other clusters, by outcome.
        gaps: the failing clusters by number of missing nodes, as far as a headline
            needed it.
        columns: scores of fitting clusters, as far as a profile needed them.

    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.known = NO_CLUSTERS
        self.fitting = NO_CLUSTERS
        self.trials: dict[int, Trial] = {}
        self.failing: dict[Trial, ClusterSet] = {}
        self.gaps: dict[int, ClusterSet] = {}
        self.columns: dict[str, ScoreColumn] = {}
        self.bounds: Mapping[str, tuple[int, int]] = {}

    def add(self, found: Mapping[int, Trial]) -> None:
        """Add the outcomes on clusters that were not tried yet, by rank."""
        ranks: dict[Trial, list[int]] = {}
        fitting = {rank: trial for rank, trial in found.items() if trial.failed < 0}
        for rank, trial in found.items():
            if trial.failed >= 0:
                ranks.setdefault(trial, []).append(rank)
        for trial, failed in ranks.items():
            self.failing[trial] = self._joined(
                self.failing.get(trial, NO_CLUSTERS), failed
            )
        self.trials.update(fitting)
        self.fitting = self._joined(self.fitting, fitting)
        self.known = self._joined(self.known, found)

    def add_gaps(self, found: Mapping[int, int]) -> None:
        """Add the number of missing nodes on clusters, by rank."""
        ranks: dict[int, list[int]] = {}
        for rank, gap in found.items():
            ranks.setdefault(gap, []).append(rank)
        for gap, some in ranks.items():
            self.gaps[gap] = self._joined(self.gaps.get(gap, NO_CLUSTERS), some)

    def _joined(self, clusters: ClusterSet, ranks: Iterable[int]) -> ClusterSet:
        found = list(ranks)
        if len(found) == 1:
            return ClusterSet(clusters | 1 << found[0])
        return ClusterSet(clusters | bits(found, self.size)) if found else clusters

    def column(self, name: str) -> ScoreColumn:
        return self.columns.setdefault(name, ScoreColumn(self.size))

    def trial(self, rank: int) -> Trial:
        """Return the outcome on a cluster that was tried."""
        found = self.trials.get(rank)
        if found is not None:
            return found
        return next(
            trial for trial, clusters in self.failing.items() if clusters >> rank & 1
        )

    def forget(self, clusters: ClusterSet) -> None:
        """Drop the outcomes on some clusters."""
        gone = ClusterSet(clusters & self.known)
        if not gone:
            return
        self.known = ClusterSet(self.known & ~gone)
        for rank in ranks_of(ClusterSet(gone & self.fitting)):
            del self.trials[rank]
            for column in self.columns.values():
                column.remove(rank)
        self.fitting = ClusterSet(self.fitting & ~gone)
        self.failing = _without(self.failing, gone)
        self.gaps = _without(self.gaps, gone)


def _without(sets: Mapping[Key, ClusterSet], gone: ClusterSet) -> dict[Key, ClusterSet]:
    found: dict[Key, ClusterSet] = {}
    for key, clusters in sets.items():
        left = ClusterSet(clusters & ~gone)
        if left:
            found[key] = left
    return found


class ScoreColumn:
    """One score of each cluster; lower is better."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.known = NO_CLUSTERS
        self.values: dict[int, int] = {}
        self._sets: dict[int, ClusterSet] = {}
        self._order: list[int] = []

    def put(self, values: Mapping[int, int]) -> None:
        """Set the scores of clusters without one, by rank."""
        self.values.update(values)
        ranks: dict[int, list[int]] = {}
        for rank, value in values.items():
            ranks.setdefault(value, []).append(rank)
        for value, found in ranks.items():
            if value not in self._sets:
                insort(self._order, value)
            self._sets[value] = ClusterSet(
                self._sets.get(value, 0) | bits(found, self._size)
            )
        self.known = ClusterSet(self.known | bits(list(values), self._size))

    def remove(self, rank: int) -> None:
        """Drop the score of a cluster, if it has one."""
        value = self.values.pop(rank, None)
        if value is None:
            return
        self.known = ClusterSet(self.known & ~(1 << rank))
        left = ClusterSet(self._sets[value] & ~(1 << rank))
        if left:
            self._sets[value] = left
        else:
            del self._sets[value]
            del self._order[bisect_left(self._order, value)]

    def lowest(self, within: ClusterSet) -> ClusterSet:
        """Return the clusters with the lowest score among `within`."""
        return self.least(within)[1]

    def least(self, within: ClusterSet) -> tuple[int, ClusterSet]:
        """Return the lowest score among `within`, and the clusters that have it."""
        if within.bit_count() < len(self._order):
            value = min(self._of(within))
            return value, ClusterSet(within & self._sets[value])
        for value in self._order:
            part = ClusterSet(within & self._sets[value])
            if part:
                return value, part
        raise ValueError("no cluster of the set has a score")

    def bounds(self, within: ClusterSet) -> tuple[int, int]:
        """Return the lowest and the highest score among `within`."""
        values = list(self._of(within))
        return min(values), max(values)

    def _of(self, within: ClusterSet) -> Iterator[int]:
        return (self.values[rank] for rank in ranks_of(within))


class TriedClusterCache:
    """The outcomes of many templates on the clusters of a fleet, without any overlay."""

    def __init__(self, index: ClusterIndex, ledger: Ledger) -> None:
        self._index = index
        self._ledger = ledger
        self._epoch = -1
        # With the ends of both logs at the last read; the most recently used comes
        # last.
        self._tried: dict[object, tuple[TriedClusters, int, int]] = {}

    def of(self, key: object) -> TriedClusters:
        """Return the outcomes that are still valid.

        `key` identifies everything else that a trial depends on.
        """
        if self._epoch != self._index.epoch:
            self.clear()
            self._epoch = self._index.epoch
        known = self._tried.pop(key, None)
        changed = self._changed_since(known[1], known[2]) if known else None
        if known is None or changed is None:
            tried = TriedClusters(len(self._index.ranked))
        else:
            tried = known[0]
            tried.forget(changed)
        self._tried[key] = (tried, self._ledger.changes.end, self._index.changes.end)
        self._drop_oldest()
        return tried

    def clear(self) -> None:
        """Drop all outcomes, because the policy of the fleet changed."""
        self._tried.clear()

    def _changed_since(self, charged: int, published: int) -> ClusterSet | None:
        """Return the clusters that changed since then, or None if a log is too short."""
        entries, ranks = (
            self._ledger.changes.since(charged),
            self._index.changes.since(published),
        )
        if entries is None or ranks is None:
            return None
        again = bits(list(dict.fromkeys(ranks)), len(self._index.ranked))
        return ClusterSet(charged_clusters(self._index, entries) | again)

    def _drop_oldest(self) -> None:
        sizes = {
            key: _TEMPLATE + len(tried.trials)
            for key, (tried, _, _) in self._tried.items()
        }
        total = sum(sizes.values())
        for oldest, size in list(sizes.items())[:-1]:
            if total <= _KEPT_MAX:
                break
            total -= size
            del self._tried[oldest]


def charged_clusters(index: ClusterIndex, changes: Iterable[Change]) -> ClusterSet:
    """Return the clusters whose charges changed."""
    names: dict[str, None] = {}
    for before, after in changes:
        if before is None or after is None or charge_key(before) != charge_key(after):
            names |= {
                entry.cluster: None for entry in (before, after) if entry is not None
            }
    return index.named(names)
