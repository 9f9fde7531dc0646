"""Scoring profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from scheduler.clusters import Slot
from scheduler.fitting import PoolOrder, Trial
from scheduler.frame import Frame
from scheduler.shapes import Shape
from scheduler.types import DeploymentView


class Chooser:
    """Orders clusters."""

    def __init__(self, frame: Frame, deployment: DeploymentView, shape: Shape, trial: Callable[[Slot], Trial]) -> None:
        self.spreads = True

    def ranked(self, slots: Iterable[Slot], own: Mapping[str, int], close: Callable[[Slot], None]) -> Iterable[tuple[Slot, Trial]]:
        """Order."""
        return ()


def pool_order(frame: Frame, deployment: DeploymentView, slot: Slot, shape: Shape) -> PoolOrder | None:
    """Order pools."""
    return None
