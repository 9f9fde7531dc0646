"""The waiting requests whose answer may change after a change of some clusters.

Deciding all waiting requests whenever one node becomes free would cost a large fleet
more than all its placements. Labels exclude most requests without matching any
hardware. Requests that depend on more than the capacity of one cluster are always
decided again.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from api_types.messages.scheduling import PlacementRequest
from scheduler import Fleet

# With more clusters than this, deciding all requests again is cheaper than finding the
# affected ones.
CLUSTERS_MAX = 64
# Rules that count replicas elsewhere: capacity on one cluster can open another.
_FAR_REACHING = ("topologySpread", "affinity", "antiAffinity")


class QueueingHints:
    """The clusters where more may fit than before."""

    def __init__(self) -> None:
        self.everywhere = False
        self.clusters: set[str] = set()

    def __bool__(self) -> bool:
        return self.everywhere or bool(self.clusters)

    def add_cluster(self, cluster: str) -> None:
        """Record a cluster with more capacity, or with changed properties."""
        self.clusters.add(cluster)
        self.everywhere = self.everywhere or len(self.clusters) > CLUSTERS_MAX

    def add_everywhere(self) -> None:
        """Record a change that can affect every answer."""
        self.everywhere = True

    def affected(
        self, waiting: Iterable[PlacementRequest], fleet: Fleet
    ) -> list[PlacementRequest]:
        """Return the requests whose answer can change, in their order."""
        # Quotas and anti-affinity of other deployments span clusters.
        if (
            self.everywhere
            or fleet.options.quotas
            or fleet.ledger.neighbours.any_avoiding
        ):
            return list(waiting)
        labels = [
            info.view.labels
            for name in sorted(self.clusters)
            if (info := fleet.clusters.get(name)) is not None
        ]
        return [place for place in waiting if self._affects(place, labels, fleet)]

    def _affects(
        self, place: PlacementRequest, labels: Iterable[Mapping[str, str]], fleet: Fleet
    ) -> bool:
        policy: Mapping[str, Any] = place.need.get("policy") or {}
        if any(policy.get(rule) for rule in _FAR_REACHING):
            return True
        wanted: Mapping[str, str] = place.need.get("matchLabels") or {}
        if any(
            all(known.get(key) == value for key, value in wanted.items())
            for known in labels
        ):
            return True
        # Existing replicas may wait for capacity to grow or to be replaced, whatever
        # the present labels of their cluster.
        return any(
            entry.cluster in self.clusters
            for entry in fleet.owned(place.namespace, place.name).values()
        )
