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
class FilterResult:
    """One filter: the clusters that pass it, whatever the others say."""

    code: str
    passing: int


def run_filters(overlay: FleetOverlay, deployment: DeploymentView, compiled: CompiledTemplate | None) -> list[FilterResult]:
    """Give the filters that look at a cluster alone, in order; without a shape (selectors do not compile) hardware is left out."""
    index, rules = overlay.index, overlay.rules
    everything = index.everything
    cache = deployment.cache
    referenced = cache.state == "Present"
    found = [
        FilterResult(reasons.LABEL_MISMATCH, index.having(deployment.match_labels)),
        FilterResult(reasons.CACHE_FOOTPRINT, index.having(cache.match_labels) if referenced else everything),
        FilterResult(reasons.CACHE_INCAPABLE, index.storage if referenced and rules.check_cache_storage else everything),
        FilterResult(reasons.DELETING, everything & ~index.deleting if rules.check_deleting else everything),
        FilterResult(reasons.NOT_READY, index.ready),
        FilterResult(reasons.NO_GATEWAY, index.gateway),
        FilterResult(reasons.TAINTED, everything & ~tainted(overlay, deployment)),
        FilterResult(reasons.NO_POOLS, index.pooled),
    ]
    if compiled is not None:
        found.append(FilterResult(reasons.NO_POOL_MATCHES, overlay.matching(compiled)))
    return found


def tainted(overlay: FleetOverlay, deployment: DeploymentView) -> int:
    """Give the clusters with a taint that the deployment does not tolerate; asked once per different list of taints."""
    found = 0
    for taints, clusters in overlay.index.tainted.items():
        if untolerated(taints, deployment.tolerations) is not None:
            found |= clusters
    return found


def passing(found: list[FilterResult], everything: int) -> int:
    """Give the clusters that pass every stage."""
    for result in found:
        everything &= result.passing
    return everything


def fill_hold(deployment: DeploymentView) -> str:
    """Say why the deployment's cache holds back new replicas, "" if it does not."""
    cache = deployment.cache
    if cache.state == "Unresolved":
        return f"Waiting for ModelCache {cache.name}"
    if cache.state == "Absent":
        return f"ModelCache {cache.name} not found; holding replica placement"
    return ""
