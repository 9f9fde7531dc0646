"""Clusters in the order of a score, kept as sets, so that the best of ten thousand are found without a look at each.

A score either belongs to a cluster and changes only when something is placed or vacated there (`Column`), or it counts the deployment's own
replicas in a domain, and then a placement changes it for all clusters of that domain at once (`Levels`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterIndex, ClusterSet


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
