"""The capacity of one watched cluster, as its adapter maps it.

A snapshot has a timestamp, so that its reader can detect a stale one. A new snapshot is
taken when an object of the adapter changed, and also periodically, so that a quiet
cluster is not mistaken for a lost one.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from activities.clusters.capacity.adapters import ADAPTERS, CapacityAdapter
from activities.clusters.capacity.kube import NO_TOLERATIONS, Tolerations
from activities.clusters.capacity.objects import CapacityObjects
from api_types.messages.capacity import CapacitySnapshot

# Much shorter than the ten minutes after which a snapshot is ignored.
_RESYNC_SECONDS = 300


def capacity_tracker(
    adapter: str,
    cluster: str,
    toleration_keys: Iterable[str] = (),
    tolerations: Tolerations = NO_TOLERATIONS,
) -> CapacityTracker | None:
    """Return the tracker with a cluster's adapter, or None without an adapter."""
    found = ADAPTERS.get(adapter)
    return (
        CapacityTracker(found, cluster, toleration_keys, tolerations) if found else None
    )


class CapacityTracker:
    """The objects that an adapter reads, and its last snapshot.

    The watch sets `synced` when all objects were listed. `toleration_keys` are keys of
    taints that engine pods tolerate because of the settings, and `tolerations` are
    those that the classes of the pools grant.
    """

    def __init__(
        self,
        adapter: CapacityAdapter,
        cluster: str,
        toleration_keys: Iterable[str] = (),
        tolerations: Tolerations = NO_TOLERATIONS,
    ) -> None:
        self.adapter = adapter
        self.objects = CapacityObjects()
        self.synced = False
        self._cluster = cluster
        self._tolerated = tuple(toleration_keys), tolerations
        self._last: CapacitySnapshot | None = None

    def snapshot(self, now: datetime) -> CapacitySnapshot | None:
        """Return the current capacity, or None before the first snapshot.

        A snapshot without changes keeps its timestamp until a new one is due.
        """
        if not self.synced:
            return self._last
        try:
            found = self.adapter.snapshot(
                self._cluster,
                self.objects,
                int(now.timestamp() * 1000),
                *self._tolerated,
            )
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            # A queue lacks a field or has an invalid quantity. The last snapshot is
            # kept until it is too old to be used.
            return self._last
        last = self._last
        same = (
            last is not None
            and found.model_copy(
                update={"observed_at": last.observed_at, "generation": last.generation}
            )
            == last
        )
        if last is None or not same or now >= self.due_at():
            self._last = found
        return self._last

    def due_at(self) -> datetime:
        """Return the time at which a new snapshot is due even without changes."""
        taken = self._last.observed_at if self._last else 0
        return datetime.fromtimestamp(taken / 1000, UTC) + timedelta(
            seconds=_RESYNC_SECONDS
        )
