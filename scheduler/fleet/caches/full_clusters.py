"""The clusters that are known to be full for a template.

The cache avoids searching a full fleet for every request. A full cluster stays full
until nodes are freed there; the ledger lists these clusters. A result of a fork is
valid for the fork only, unless the fork has not changed that cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterIndex, ClusterSet
from scheduler.fleet.ledger import Ledger
from scheduler.hardware.template import CompiledTemplate

_FREED_MAX = 100_000
_CHANGED_MAX = 100_000
# Limit of cached templates. Above it the cache is cleared, which costs one search for
# each template.
_TEMPLATES_MAX = 20_000


class FullClusterCache:
    """Full and matching clusters per template, updated from the fleet's change logs."""

    def __init__(self, index: ClusterIndex, ledger: Ledger) -> None:
        self._index = index
        self._ledger = ledger
        self._full: dict[str, ClusterSet] = {}
        self._epoch = -1
        self._freed_read = 0
        self._blocked: dict[str, tuple[dict[int, ClusterSet], int]] = {}

    def _catch_up(self) -> None:
        freed = self._ledger.freed
        if self._epoch != self._index.epoch:
            self._epoch = self._index.epoch
            self._full.clear()
            self._blocked.clear()
            self._freed_read = len(freed)
        elif self._freed_read < len(freed):
            self._forget_full(self._index.named(freed[self._freed_read :]))
            self._freed_read = len(freed)
        if len(self._index.changed_layouts) > _CHANGED_MAX:
            self._index.changed_layouts.clear()
            self._blocked.clear()
        if self._freed_read > _FREED_MAX:
            freed.clear()
            self._freed_read = 0

    def _forget_full(self, clusters: ClusterSet) -> None:
        self._full = {
            digest: ClusterSet(full & ~clusters) for digest, full in self._full.items()
        }

    def blocked(self, compiled: CompiledTemplate) -> Mapping[int, ClusterSet]:
        """Return the clusters by the first engine without a pool, as the index does."""
        self._catch_up()
        changed = self._index.changed_layouts
        kept = self._blocked.get(compiled.digest)
        if kept is None:
            found = self._index.blocked(compiled)
        else:
            found, read = kept
            for rank in changed[read:]:
                others = ~(1 << rank)
                found = {
                    engine: ClusterSet(known & others)
                    for engine, known in found.items()
                }
                engine = compiled.on(self._index.ranked[rank].layout).blocked
                found[engine] = ClusterSet(found.get(engine, 0) | 1 << rank)
        if len(self._blocked) >= _TEMPLATES_MAX:
            self._blocked.clear()
            self._full.clear()
        self._blocked[compiled.digest] = (found, len(changed))
        return found

    def full(self, compiled: CompiledTemplate) -> ClusterSet:
        """Return the clusters known to have no free capacity for the template."""
        self._catch_up()
        return self._full.get(compiled.digest, NO_CLUSTERS)

    def add_full(self, compiled: CompiledTemplate, clusters: ClusterSet) -> None:
        """Record clusters without free capacity."""
        self._full[compiled.digest] = ClusterSet(
            self._full.get(compiled.digest, 0) | clusters
        )

    def clear(self) -> None:
        """Drop all known full clusters."""
        self._full.clear()

    def forget(self, rank: int) -> None:
        """Drop one full cluster, because its capacity changed."""
        self._forget_full(ClusterSet(1 << rank))
