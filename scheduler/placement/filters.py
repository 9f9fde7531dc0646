"""The filters of a cluster, asked in one order for every purpose.

Choosing needs only the clusters that pass all of them; explaining needs, for each cluster, the first that it fails. Both read the same
stages, so an explanation can never differ from the decision it explains. The last two filters, room and policy, depend on what was placed
a moment ago and belong to `fill`.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.template import CompiledTemplate
from scheduler.kubernetes.tolerations import untolerated
from scheduler.model import reasons
from scheduler.model.inputs import DeploymentView


@dataclass(frozen=True, slots=True)
class Stage:
    """One filter: the clusters that pass it, whatever the others say."""

    code: str
    passing: int


def stages(frame: FleetOverlay, deployment: DeploymentView, shape: CompiledTemplate | None) -> list[Stage]:
    """Give the filters that look at a cluster alone, in order; without a shape (selectors do not compile) hardware is left out."""
    index = frame.index
    everything = index.everything
    cache = deployment.cache
    referenced = cache.state == "Present"
    found = [
        Stage(reasons.LABEL_MISMATCH, index.having(deployment.match_labels)),
        Stage(reasons.CACHE_FOOTPRINT, index.having(cache.match_labels) if referenced else everything),
        Stage(reasons.CACHE_INCAPABLE, index.storage if referenced and not frame.reference else everything),
        Stage(reasons.DELETING, everything if frame.reference else everything & ~index.deleting),
        Stage(reasons.NOT_READY, index.ready),
        Stage(reasons.NO_GATEWAY, index.gateway),
        Stage(reasons.TAINTED, everything & ~tainted(frame, deployment)),
        Stage(reasons.NO_POOLS, index.pooled),
    ]
    if shape is not None:
        found.append(Stage(reasons.NO_POOL_MATCHES, frame.matching(shape)))
    return found


def tainted(frame: FleetOverlay, deployment: DeploymentView) -> int:
    """Give the clusters with a taint that the deployment does not tolerate; asked once per different list of taints."""
    found = 0
    for taints, clusters in frame.index.tainted.items():
        if untolerated(taints, deployment.tolerations) is not None:
            found |= clusters
    return found


def passing(found: list[Stage], everything: int) -> int:
    """Give the clusters that pass every stage."""
    for stage in found:
        everything &= stage.passing
    return everything


def fill_hold(deployment: DeploymentView) -> str:
    """Say why the deployment's cache holds back new replicas, "" if it does not."""
    cache = deployment.cache
    if cache.state == "Unresolved":
        return f"Waiting for ModelCache {cache.name}"
    if cache.state == "Absent":
        return f"ModelCache {cache.name} not found; holding replica placement"
    return ""
