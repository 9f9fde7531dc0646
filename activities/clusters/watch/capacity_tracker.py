"""The capacity of one cluster as its adapter maps it, kept while the cluster is watched.

A snapshot has a timestamp, so that its reader can detect a stale one. A new one is taken when anything changed that the adapter reads, and
otherwise periodically, so that a quiet cluster is not mistaken for a lost one.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from activities.clusters.capacity.adapters import ADAPTERS, Adapter
from activities.clusters.capacity.kube import NO_TOLERATIONS, Tolerations
from activities.clusters.capacity.objects import Objects
from api_types.messages.capacity import CapacitySnapshot

# Well within the ten minutes after which a snapshot is ignored.
_RESYNC_SECONDS = 300


def capacity_tracker(
    adapter: str, cluster: str, toleration_keys: Iterable[str] = (), tolerations: Tolerations = NO_TOLERATIONS
) -> CapacityTracker | None:
    """Give the tracker with a cluster's adapter; None where declared capacity counts."""
    found = ADAPTERS.get(adapter)
    return CapacityTracker(found, cluster, toleration_keys, tolerations) if found else None


class CapacityTracker:
    """The objects that an adapter reads, and its last snapshot. `synced`: all of them were listed; the watch sets it.

    `toleration_keys` are taints that engine pods tolerate by the settings, `tolerations` what the classes of the pools grant them.
    """

    def __init__(
        self, adapter: Adapter, cluster: str, toleration_keys: Iterable[str] = (), tolerations: Tolerations = NO_TOLERATIONS
    ) -> None:
        self.adapter = adapter
        self.objects = Objects()
        self.synced = False
        self._cluster = cluster
        self._tolerated = tuple(toleration_keys), tolerations
        self._last: CapacitySnapshot | None = None

    def snapshot(self, now: datetime) -> CapacitySnapshot | None:
        """Give the current capacity; a snapshot without changes keeps its timestamp until it is old. None before the first one."""
        if not self.synced:
            return self._last
        try:
            found = self.adapter.snapshot(self._cluster, self.objects, int(now.timestamp() * 1000), *self._tolerated)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            # A queue with an invalid quantity, or without a field: the last snapshot stays until it is stale by its own timestamp.
            return self._last
        last = self._last
        same = last is not None and found.model_copy(update={"observed_at": last.observed_at, "generation": last.generation}) == last
        if last is None or not same or now >= self.due_at():
            self._last = found
        return self._last

    def due_at(self) -> datetime:
        """Give the time at which a new snapshot is due even if nothing changes."""
        taken = self._last.observed_at if self._last else 0
        return datetime.fromtimestamp(taken / 1000, UTC) + timedelta(seconds=_RESYNC_SECONDS)
