"""The pools that those who wait ahead keep, as one deployment behind them finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.fleet.cluster_index import Slot
from scheduler.fleet.overlay import FleetOverlay
from scheduler.fleet.queue_reservations import Owner, ahead_of
from scheduler.hardware.device_matching import MatchRules
from scheduler.hardware.template import CompiledTemplate, placing_units, shape_of
from scheduler.placement.filters import passing, stages


@dataclass(frozen=True, slots=True)
class ReservedPool:
    """One hold: the pools that fit its engines, on the clusters that pass its other filters."""

    owner: Owner
    clusters: int
    shape: CompiledTemplate

    def positions(self, slot: Slot) -> frozenset[int]:
        """Give the held pools of a cluster."""
        if not self.clusters >> slot.rank & 1:
            return frozenset()
        return frozenset(p for engine in self.shape.on(slot.layout).engines for p in engine.positions)


class ReservedPools:
    """All holds that one deployment has to respect, in queue order; empty for most."""

    def __init__(self, frame: FleetOverlay, owner: Owner, priority: int) -> None:
        self._held: Sequence[ReservedPool] = [
            _held(frame, hold.owner) for hold in ahead_of(frame.holds, owner, priority, frame.now, frame.options.hold_for_seconds)
        ]
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


def _held(frame: FleetOverlay, owner: Owner) -> ReservedPool:
    """Work out a hold's pools once per batch."""
    known = frame.held_pools.get(owner)
    if isinstance(known, ReservedPool):
        return known
    deployment = frame.holds[owner].deployment
    shape = shape_of(placing_units(deployment.engines), MatchRules.of(frame.options))
    held = ReservedPool(owner, passing(stages(frame, deployment, shape), frame.index.everything), shape)
    frame.held_pools[owner] = held
    return held
