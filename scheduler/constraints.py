"""Which clusters the deployment's own rules leave: topology spread, affinity, anti-affinity."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.clusters import Slot
from scheduler.frame import Frame
from scheduler.types import DeploymentView


class Constraints:
    """Turns rules into sets of clusters, anew for every replica because each placement shifts the counts."""

    def __init__(self, frame: Frame, deployment: DeploymentView, passing: int) -> None:
        self._everything = frame.index.everything

    def allowed(self, own: Mapping[str, int]) -> int:
        """Give the clusters where one more replica breaks no rule; `own` are the replicas of the deployment per cluster."""
        return self._everything

    def violated(self, slot: Slot, own: Mapping[str, int]) -> str:
        """Name the rule that a cluster breaks."""
        return ""
