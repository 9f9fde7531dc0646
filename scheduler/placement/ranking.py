"""Clusters in the order of a score, kept as sets, so that the best of ten thousand are found without a look at each.

A score either belongs to a cluster and changes only when something is placed or vacated there (`Column`), or it counts the deployment's own
replicas in a domain, and then a placement changes it for all clusters of that domain at once (`Levels`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping

from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterIndex, ClusterSet, bits, ranks_of


class Levels:
    """Clusters by how many replicas are in their domain; only domains with replicas are kept."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._sets: dict[int, ClusterSet] = {}
        self._occupied = NO_CLUSTERS

    def add(self, domain: str, clusters: ClusterSet, change: int) -> None:
        """Count replicas of a domain, which has these clusters."""
        before = self._counts.get(domain, 0)
        after = self._counts[domain] = before + change
        if before:
            self._sets[before] = ClusterSet(self._sets[before] & ~clusters)
        if after:
            self._sets[after] = ClusterSet(self._sets.get(after, 0) | clusters)
        self._occupied = ClusterSet(self._occupied | clusters if after else self._occupied & ~clusters)

    def ascending(self, within: ClusterSet) -> Iterator[tuple[int, ClusterSet]]:
        """Split clusters by their counts, the lowest first."""
        if free := ClusterSet(within & ~self._occupied):
            yield 0, free
        for count in sorted(self._sets):
            if part := ClusterSet(within & self._sets[count]):
                yield count, part

    def lowest(self, within: ClusterSet) -> ClusterSet:
        """Return the clusters with the lowest count among `within`."""
        return next(part for _, part in self.ascending(within))


class OwnReplicas:
    """Where the replicas of one deployment are: by cluster, and by the value of some labels of clusters."""

    def __init__(self, index: ClusterIndex, keys: Iterable[str]) -> None:
        self._index = index
        self.by_name: dict[str, int] = {}
        self.clusters = Levels()
        self.domains: Mapping[str, Levels] = {key: Levels() for key in keys}

    def add(self, cluster: str, change: int) -> None:
        """Count replicas on a cluster, which may not be known any more."""
        self.by_name[cluster] = self.by_name.get(cluster, 0) + change
        info = self._index.clusters.get(cluster)
        if info is None:
            return
        self.clusters.add(cluster, ClusterSet(1 << info.rank), change)
        for key, levels in self.domains.items():
            value = info.view.labels.get(key, "")
            levels.add(value, self._with_label(key, value), change)

    def _with_label(self, key: str, value: str) -> ClusterSet:
        """Return the clusters of a domain. Clusters without the label are one domain."""
        values = self._index.label_values.get(key, {})
        found: int = values.get(value, NO_CLUSTERS)
        if not value:
            labelled = 0
            for clusters in values.values():
                labelled |= clusters
            found |= self._index.everything & ~labelled
        return ClusterSet(found)


class Column:
    """One score of each cluster; lower is better."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.values: dict[int, int] = {}
        self._sets: dict[int, ClusterSet] = {}
        self._order: list[int] = []

    def put(self, values: Mapping[int, int]) -> None:
        """Set the scores of clusters that have none, by rank."""
        self.values.update(values)
        ranks: dict[int, list[int]] = {}
        for rank, value in values.items():
            ranks.setdefault(value, []).append(rank)
        for value, found in ranks.items():
            if value not in self._sets:
                insort(self._order, value)
            self._sets[value] = ClusterSet(self._sets.get(value, 0) | bits(found, self._size))

    def remove(self, rank: int) -> None:
        """Forget the score of a cluster."""
        value = self.values.pop(rank)
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
        return next((value, part) for value in self._order if (part := ClusterSet(within & self._sets[value])))

    def bounds(self, within: ClusterSet) -> tuple[int, int]:
        """Return the lowest and the highest score among `within`."""
        values = list(self._of(within))
        return min(values), max(values)

    def _of(self, within: ClusterSet) -> Iterator[int]:
        return (self.values[rank] for rank in ranks_of(within))
