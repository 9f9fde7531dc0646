"""The pools that are reserved for deployments which are ahead of another in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.fleet.cluster_index import NO_CLUSTERS, ClusterInfo, ClusterSet
from scheduler.fleet.overlay import FleetOverlay
from scheduler.fleet.queue_reservations import ahead_of
from scheduler.hardware.template import (
    CompiledTemplate,
    compile_template,
    placing_units,
)
from scheduler.model.identity import Owner, named_in
from scheduler.placement.filters import passing, run_filters


@dataclass(frozen=True, slots=True)
class ReservedPool:
    """The pools of one reservation, on the clusters that pass its other filters."""

    owner: Owner
    clusters: ClusterSet
    compiled: CompiledTemplate

    def positions(self, info: ClusterInfo) -> frozenset[int]:
        """Return the reserved pools of a cluster."""
        if not self.clusters >> info.rank & 1:
            return frozenset()
        engines = self.compiled.on(info.layout).engines
        return frozenset[int]().union(*(engine.positions for engine in engines))


class ReservedPools:
    """All reservations that one deployment must respect, in queue order.

    There are often none.
    """

    def __init__(self, overlay: FleetOverlay, owner: Owner, priority: int) -> None:
        self._namespace = owner[0]
        ahead = ahead_of(
            overlay.queue_reservations,
            owner,
            priority,
            overlay.now,
            overlay.options.hold_for_seconds,
        )
        self._reserved: Sequence[ReservedPool] = [
            _reserved(overlay, reservation.owner) for reservation in ahead
        ]
        self.clusters = NO_CLUSTERS
        for reserved in self._reserved:
            self.clusters = ClusterSet(self.clusters | reserved.clusters)

    def __bool__(self) -> bool:
        return bool(self.clusters)

    def positions(self, info: ClusterInfo) -> frozenset[int]:
        """Return the pools of a cluster whose free nodes are reserved for others."""
        if not self.clusters >> info.rank & 1:
            return frozenset()
        return frozenset[int]().union(
            *(reserved.positions(info) for reserved in self._reserved)
        )

    def violated(self, info: ClusterInfo) -> str:
        """Return the rule that a placement on a cluster would break, or "".

        The text names the first deployment in the queue that reserves pools there.
        """
        ahead = next(
            (known.owner for known in self._reserved if known.positions(info)), None
        )
        if ahead is None:
            return ""
        return f"StrictOrder: {named_in(self._namespace, ahead)} waits ahead"

    def left(self, info: ClusterInfo, free: Sequence[int]) -> list[int]:
        """Return the free nodes per pool that are not reserved."""
        reserved = self.positions(info)
        return [
            min(nodes, 0) if p in reserved else nodes for p, nodes in enumerate(free)
        ]


def _reserved(overlay: FleetOverlay, owner: Owner) -> ReservedPool:
    """Return the pools of a reservation, computed once per batch."""
    known = overlay.reserved_pools.get(owner)
    if isinstance(known, ReservedPool):
        return known
    deployment = overlay.queue_reservations[owner].deployment
    compiled = compile_template(
        placing_units(deployment.engines), overlay.rules.matching
    )
    clusters = passing(
        run_filters(overlay, deployment, compiled), overlay.index.everything
    )
    reserved = overlay.reserved_pools[owner] = ReservedPool(owner, clusters, compiled)
    return reserved
