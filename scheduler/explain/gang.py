"""A gang is placed as a whole, so what keeps it out shows only once those of its replicas are placed that fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from scheduler.explain.near_miss import Miss
from scheduler.model.decision import Placement
from scheduler.placement.placer import ReplicaPlacer


@dataclass(frozen=True, slots=True)
class Gang:
    """How many replicas have to be placed together, and the placements that were found before one had none."""

    size: int
    placements: tuple[Placement, ...] = ()

    @property
    def placed(self) -> int:
        """How many of them fit."""
        return len(self.placements)

    def text(self, miss: Miss | None) -> str:
        """Say what the gang needs as a whole beside what is free, given what the next replica lacks; "" where nodes are not counted."""
        if miss is None or not miss.needs:
            return f"best: {miss.text}, and {self.placed} of {self.size} replicas of the gang fit" if miss and miss.text else ""
        nodes = sum(need.nodes for need in miss.needs)
        free = self.placed * nodes + sum(min(need.free, need.nodes) for need in miss.needs)
        text = f"a gang of {self.size} replicas needs {self.size * nodes} nodes, {free} free"
        if len(miss.needs) > 1 or any(placement.cluster != miss.cluster for placement in self.placements):
            return text
        return f"{text} on {miss.cluster}/{miss.needs[0].pool}"


@contextmanager
def gang_begun(placer: ReplicaPlacer, missing: int) -> Iterator[Gang]:
    """Place the first replicas of the gang that comes next, so that the reasons are those of the one that finds no place; then undo it."""
    size = min(max(1, placer.deployment.policy.gang_replicas), missing)
    placed: list[Placement] = []
    try:
        while len(placed) < size - 1 and (placement := placer.place()) is not None:
            placed.append(placement)
        yield Gang(size, tuple(placed))
    finally:
        for placement in reversed(placed):
            placer.undo(placement)
