"""Clusters ordered by a score, stored as sets.

The best of ten thousand clusters are found without visiting each of them. There are two
kinds of scores. A score that belongs to a cluster changes only with placements there
(`ScoreColumn`). A score that counts the deployment's own replicas in a domain changes
with a placement for all clusters of that domain (`Levels`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterIndex, ClusterSet


class Levels:
    """Clusters by the number of replicas in their domain.

    Empty domains are not stored.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._sets: dict[int, ClusterSet] = {}
        self._occupied = NO_CLUSTERS

    def add(self, domain: str, clusters: ClusterSet, change: int) -> None:
        """Change the number of replicas in a domain that consists of these clusters."""
        before = self._counts.get(domain, 0)
        after = self._counts[domain] = before + change
        if before:
            self._sets[before] = ClusterSet(self._sets[before] & ~clusters)
        if after:
            self._sets[after] = ClusterSet(self._sets.get(after, 0) | clusters)
        self._occupied = ClusterSet(
            self._occupied | clusters if after else self._occupied & ~clusters
        )

    def ascending(self, within: ClusterSet) -> Iterator[tuple[int, ClusterSet]]:
        """Split clusters by their counts, the lowest first."""
        free = ClusterSet(within & ~self._occupied)
        if free:
            yield 0, free
        for count in sorted(self._sets):
            part = ClusterSet(within & self._sets[count])
            if part:
                yield count, part

    def lowest(self, within: ClusterSet) -> ClusterSet:
        """Return the clusters with the lowest count among `within`."""
        return next(part for _, part in self.ascending(within))


class WeightedSums:
    """A sum of weights for each cluster, as one set of clusters per binary digit.

    Adding a weight to any set of clusters takes a few operations per digit, however
    many clusters and different sums there are. No sum may become negative.
    """

    def __init__(self) -> None:
        self._digits: list[int] = []

    def add(self, clusters: ClusterSet, weight: int) -> None:
        """Add a weight, which may be negative, to the sums of some clusters."""
        left, first = abs(weight), 0
        while left and clusters:
            if left & 1:
                self._add_digit(clusters, first, is_less=weight < 0)
            left, first = left >> 1, first + 1

    def _add_digit(self, clusters: int, first: int, *, is_less: bool) -> None:
        carried, n = clusters, first
        while carried:
            while n >= len(self._digits):
                self._digits.append(0)
            before = self._digits[n]
            self._digits[n] = before ^ carried
            carried &= ~before if is_less else before
            n += 1

    def ascending(self, within: ClusterSet) -> Iterator[ClusterSet]:
        """Split clusters into groups of equal sums, the lowest first."""
        left: int = within
        while left:
            lowest = left
            for digit in reversed(self._digits):
                lowest = lowest & ~digit or lowest
            yield ClusterSet(lowest)
            left &= ~lowest


class OwnReplicas:
    """The replicas of one deployment, by cluster and by value of some cluster labels."""

    def __init__(self, index: ClusterIndex, keys: Iterable[str]) -> None:
        self._index = index
        self.by_name: dict[str, int] = {}
        self.clusters = Levels()
        self.domains: Mapping[str, Levels] = {key: Levels() for key in keys}

    def add(self, cluster: str, change: int) -> None:
        """Change the number of replicas on a cluster, which may no longer exist."""
        self.by_name[cluster] = self.by_name.get(cluster, 0) + change
        info = self._index.clusters.get(cluster)
        if info is None:
            return
        self.clusters.add(cluster, ClusterSet(1 << info.rank), change)
        for key, levels in self.domains.items():
            value = info.view.labels.get(key, "")
            levels.add(value, self._with_label(key, value), change)

    def _with_label(self, key: str, value: str) -> ClusterSet:
        """Return the clusters of a domain; clusters without the label form one domain."""
        values = self._index.label_values.get(key, {})
        found: int = values.get(value, NO_CLUSTERS)
        if not value:
            labelled = 0
            for clusters in values.values():
                labelled |= clusters
            found |= self._index.everything & ~labelled
        return ClusterSet(found)
