"""Diagnosis of gangs.

A gang is placed as a whole. The reason for its rejection shows only after the replicas
that fit have been placed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from scheduler.explain.near_miss import Miss
from scheduler.model.decision import Placement
from scheduler.placement.placer import ReplicaPlacer


@dataclass(frozen=True, slots=True)
class Gang:
    """The replicas to place together, and the placements found before one failed."""

    size: int
    placements: tuple[Placement, ...] = ()

    @property
    def placed(self) -> int:
        """Return the number of replicas that fit."""
        return len(self.placements)

    def text(self, miss: Miss | None) -> str:
        """Return the gang's need and the free nodes, given the next replica's miss.

        Return "" if nodes are not counted.
        """
        if miss is None or not miss.needs:
            if miss is None or not miss.text:
                return ""
            fitting = f"{self.placed} of {self.size} replicas of the gang fit"
            return f"best: {miss.text}, and {fitting}"
        nodes = sum(need.nodes for need in miss.needs)
        free = self.placed * nodes + sum(
            min(need.free, need.nodes) for need in miss.needs
        )
        needed = self.size * nodes
        text = f"a gang of {self.size} replicas needs {needed} nodes, {free} free"
        if len(miss.needs) > 1 or any(
            placement.cluster != miss.cluster for placement in self.placements
        ):
            return text
        return f"{text} on {miss.cluster}/{miss.needs[0].pool}"


@contextmanager
def gang_begun(placer: ReplicaPlacer, missing: int) -> Iterator[Gang]:
    """Place the replicas of the next gang that fit, and remove them on exit.

    Inside the context, diagnoses describe the first replica that finds no place.
    """
    size = min(max(1, placer.deployment.policy.gang_replicas), missing)
    placed: list[Placement] = []
    try:
        while len(placed) < size - 1:
            placement = placer.place()
            if placement is None:
                break
            placed.append(placement)
        yield Gang(size, tuple(placed))
    finally:
        for placement in reversed(placed):
            placer.undo(placement)
