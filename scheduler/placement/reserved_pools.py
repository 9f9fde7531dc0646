"""The pools that those who wait ahead keep, as one deployment behind them finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.fleet.cluster_index import Slot
from scheduler.fleet.overlay import FleetOverlay
from scheduler.fleet.queue_reservations import ahead_of
from scheduler.hardware.template import CompiledTemplate, compile_template, placing_units
from scheduler.model.identity import Owner
from scheduler.placement.filters import passing, run_filters


@dataclass(frozen=True, slots=True)
class ReservedPool:
    """One hold: the pools that fit its engines, on the clusters that pass its other filters."""

    owner: Owner
    clusters: int
    compiled: CompiledTemplate

    def positions(self, slot: Slot) -> frozenset[int]:
        """Give the held pools of a cluster."""
        if not self.clusters >> slot.rank & 1:
            return frozenset()
        return frozenset(p for engine in self.compiled.on(slot.layout).engines for p in engine.positions)


class ReservedPools:
    """All holds that one deployment has to respect, in queue order; empty for most."""

    def __init__(self, overlay: FleetOverlay, owner: Owner, priority: int) -> None:
        ahead = ahead_of(overlay.queue_reservations, owner, priority, overlay.now, overlay.options.hold_for_seconds)
        self._held: Sequence[ReservedPool] = [_held(overlay, reservation.owner) for reservation in ahead]
        self._clusters = 0
        for held in self._held:
            self._clusters |= held.clusters

    def __bool__(self) -> bool:
        return bool(self._clusters)

    def positions(self, slot: Slot) -> frozenset[int]:
        """Give the pools of a cluster whose free nodes are kept for others."""
        if not self._clusters >> slot.rank & 1:
            return frozenset()
        return frozenset[int]().union(*(held.positions(slot) for held in self._held))

    def violated(self, slot: Slot) -> str:
        """Name whoever holds pools of a cluster, the first in queue order, as the rule that a placement there would break."""
        return next((f"StrictOrder: {'/'.join(held.owner)} waits ahead" for held in self._held if held.positions(slot)), "")

    def left(self, slot: Slot, free: Sequence[int]) -> list[int]:
        """Give the free nodes per pool that may be taken."""
        kept = self.positions(slot)
        return [min(nodes, 0) if p in kept else nodes for p, nodes in enumerate(free)]


def _held(overlay: FleetOverlay, owner: Owner) -> ReservedPool:
    """Work out a hold's pools once per batch."""
    known = overlay.reserved_pools.get(owner)
    if isinstance(known, ReservedPool):
        return known
    deployment = overlay.queue_reservations[owner].deployment
    compiled = compile_template(placing_units(deployment.engines), overlay.rules.matching)
    held = ReservedPool(owner, passing(run_filters(overlay, deployment, compiled), overlay.index.everything), compiled)
    overlay.reserved_pools[owner] = held
    return held
