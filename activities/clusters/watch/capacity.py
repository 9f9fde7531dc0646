"""The capacity of one cluster as its adapter sees it, kept while the cluster is watched.

A snapshot says when it was taken, so that its reader can tell an old one. It is taken anew when anything changed that the adapter reads,
and otherwise now and then, so that a quiet cluster is not taken for a lost one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from activities.clusters.capacity.adapters import ADAPTERS, Adapter
from activities.clusters.capacity.objects import Objects
from api_types.messages.capacity import CapacitySnapshot

# Well within the ten minutes after which a snapshot is ignored.
_AGAIN_SECONDS = 300


def capacity_book(adapter: str, cluster: str) -> CapacityBook | None:
    """Give the book of a cluster's adapter; None where declared capacity counts."""
    found = ADAPTERS.get(adapter)
    return CapacityBook(found, cluster) if found else None


class CapacityBook:
    """What an adapter reads, and its last snapshot. `whole`: nothing of it is still to be listed; who fills the book says so."""

    def __init__(self, adapter: Adapter, cluster: str) -> None:
        self.adapter = adapter
        self.objects = Objects()
        self.whole = False
        self._cluster = cluster
        self._last: CapacitySnapshot | None = None

    def snapshot(self, now: datetime) -> CapacitySnapshot | None:
        """Give what the cluster has now; a snapshot that says nothing new keeps its time until it is old. None before the first one."""
        if not self.whole:
            return self._last
        try:
            found = self.adapter.snapshot(self._cluster, self.objects, int(now.timestamp() * 1000))
        except ValueError:
            # A queue with an amount that nobody can read: what was seen before grows old and is then ignored, by its own time.
            return self._last
        last = self._last
        same = last is not None and found.model_copy(update={"observed_at": last.observed_at, "generation": last.generation}) == last
        if last is None or not same or now >= self.due_at():
            self._last = found
        return self._last

    def due_at(self) -> datetime:
        """Say when the snapshot has to be taken anew even if nothing changes."""
        taken = self._last.observed_at if self._last else 0
        return datetime.fromtimestamp(taken / 1000, UTC) + timedelta(seconds=_AGAIN_SECONDS)
