"""Whose answer can change: what grew somewhere, and who waits for something there.

Deciding anew about everybody who waits, whenever one node comes free, would cost a large fleet more than all its placements. Labels tell
most of them apart without matching any hardware; whoever depends on more than a cluster's own room is always asked about again.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from api_types.messages.entities import Place
from scheduler import Fleet

# Beyond so many clusters it is cheaper to ask about everybody than to find out whom it concerns.
CLUSTERS_MAX = 64
# Rules that count replicas elsewhere: room on one cluster can open another.
_FAR_REACHING = ("topologySpread", "affinity", "antiAffinity")


class QueueingHints:
    """Where more may fit than before."""

    def __init__(self) -> None:
        self.everywhere = False
        self.clusters: set[str] = set()

    def __bool__(self) -> bool:
        return self.everywhere or bool(self.clusters)

    def on(self, cluster: str) -> None:
        """Note a cluster with more room, or with other properties."""
        self.clusters.add(cluster)
        self.everywhere = self.everywhere or len(self.clusters) > CLUSTERS_MAX

    def anywhere(self) -> None:
        """Note something that can change every answer."""
        self.everywhere = True

    def concerned(self, waiting: Iterable[Place], fleet: Fleet) -> list[Place]:
        """Give those whose answer can change, in their order."""
        # Quotas and the demands of others span clusters.
        if self.everywhere or fleet.options.quotas or any(True for _ in fleet.ledger.with_anti_affinity()):
            return list(waiting)
        labels = [slot.view.labels for name in sorted(self.clusters) if (slot := fleet.clusters.get(name)) is not None]
        return [place for place in waiting if self._concerns(place, labels, fleet)]

    def _concerns(self, place: Place, labels: Iterable[Mapping[str, str]], fleet: Fleet) -> bool:
        policy: Mapping[str, Any] = place.need.get("policy") or {}
        if any(policy.get(rule) for rule in _FAR_REACHING):
            return True
        wanted: Mapping[str, str] = place.need.get("matchLabels") or {}
        if any(all(known.get(key) == value for key, value in wanted.items()) for known in labels):
            return True
        # What stands may wait for room to grow or to be replaced, wherever its cluster's labels have gone since.
        return any(entry.cluster in self.clusters for entry in fleet.owned(place.namespace, place.name).values())
