"""Limits per namespace, asked when something is placed or grows, never about what runs."""

from __future__ import annotations

from scheduler.clusters import Slot
from scheduler.frame import Frame
from scheduler.results import EnginePlacement
from scheduler.types import DeploymentView


class QuotaGate:
    """The quotas of one deployment's namespace."""

    def __init__(self, frame: Frame, deployment: DeploymentView, priority: int) -> None:
        self.priority = priority

    def refuses(self, slot: Slot, engines: tuple[EnginePlacement, ...]) -> str:
        """Say which quota is exceeded, "" if none."""
        return ""

    def refuses_growth(self, slot: Slot, before: tuple[EnginePlacement, ...], after: tuple[EnginePlacement, ...]) -> str:
        """Say which quota a growing replica would exceed, "" if none."""
        return ""

    def charge(self, slot: Slot, engines: tuple[EnginePlacement, ...], sign: int) -> None:
        """Count a placement, or take it back."""
