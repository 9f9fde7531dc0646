"""Which clusters are known to be full for a shape, so that a full fleet is not searched again and again.

A cluster found full stays full until nodes come free there; the ledger lists where that happens. What was found on a fork counts for the
fork alone, unless the fork has not touched that cluster.
"""

from __future__ import annotations

from scheduler.fleet.cluster_index import ClusterIndex
from scheduler.fleet.ledger import Ledger
from scheduler.hardware.template import CompiledTemplate

_FREED_MAX = 100_000


class FullClusterCache:
    """Known-full clusters and matching clusters per shape, kept up by reading the fleet's logs of changes."""

    def __init__(self, index: ClusterIndex, ledger: Ledger) -> None:
        self._index = index
        self._ledger = ledger
        self._full: dict[str, int] = {}
        self._epoch = -1
        self._freed_read = 0
        self._matching: dict[str, tuple[int, int]] = {}

    def _catch_up(self) -> None:
        freed = self._ledger.freed
        if self._epoch != self._index.epoch:
            self._epoch = self._index.epoch
            self._full.clear()
            self._matching.clear()
            self._freed_read = len(freed)
        elif self._freed_read < len(freed):
            slots = self._index.slots
            risen = 0
            for name in set(freed[self._freed_read :]):
                if name in slots:
                    risen |= 1 << slots[name].rank
            self._full = {compiled: full & ~risen for compiled, full in self._full.items()}
            self._freed_read = len(freed)
        if self._freed_read > _FREED_MAX:
            freed.clear()
            self._freed_read = 0

    def matching(self, compiled: CompiledTemplate) -> int:
        """Give the clusters whose pools fit the shape, node counts left aside."""
        self._catch_up()
        relaid_ranks = self._index.relaid_ranks
        known = self._matching.get(compiled.digest)
        if known is None:
            found = self._index.matching(compiled)
        else:
            found, read = known
            for rank in relaid_ranks[read:]:
                fits = compiled.on(self._index.ranked[rank].layout).blocked < 0
                found = found | 1 << rank if fits else found & ~(1 << rank)
        self._matching[compiled.digest] = (found, len(relaid_ranks))
        return found

    def full(self, compiled: CompiledTemplate) -> int:
        """Give the clusters known to have no room for the shape."""
        self._catch_up()
        return self._full.get(compiled.digest, 0)

    def learn_full(self, compiled: CompiledTemplate, clusters: int) -> None:
        """Remember clusters without room."""
        self._full[compiled.digest] = self._full.get(compiled.digest, 0) | clusters

    def clear(self) -> None:
        """Forget everything that was found full."""
        self._full.clear()

    def forget(self, rank: int) -> None:
        """Look at a cluster again, because its capacity changed."""
        self._full = {compiled: full & ~(1 << rank) for compiled, full in self._full.items()}
