"""The cluster filters, run in one order for every purpose.

Placement only needs the clusters that pass all filters. An explanation needs the first
filter that each cluster fails. Both read the same results, so an explanation cannot
differ from its decision. The last two filters, free nodes and policy, depend on earlier
placements of the same cycle and belong to `placer`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.fleet.cluster_index import ClusterSet
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.template import CompiledTemplate
from scheduler.kubernetes.tolerations import untolerated
from scheduler.model import reasons
from scheduler.model.inputs import DeploymentView


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The clusters that pass one filter, regardless of the other filters.

    `code` is the reason for the clusters that fail it.
    """

    code: str
    passing: ClusterSet


def run_filters(
    overlay: FleetOverlay, deployment: DeploymentView, compiled: CompiledTemplate | None
) -> list[FilterResult]:
    """Run the filters that depend on a cluster alone, in order.

    The hardware filter is left out if the selectors do not compile (`compiled` is
    None).
    """
    index, rules = overlay.index, overlay.rules
    everything = index.everything
    cache = deployment.cache
    referenced = cache.state == "Present"
    found = [
        FilterResult(reasons.LABEL_MISMATCH, index.having(deployment.match_labels)),
        FilterResult(
            reasons.CACHE_FOOTPRINT,
            index.having(cache.match_labels) if referenced else everything,
        ),
        FilterResult(
            reasons.CACHE_INCAPABLE,
            index.storage if referenced and rules.check_cache_storage else everything,
        ),
        FilterResult(
            reasons.DELETING,
            ClusterSet(everything & ~index.deleting)
            if rules.check_deleting
            else everything,
        ),
        FilterResult(reasons.NOT_READY, index.ready),
        FilterResult(reasons.NO_GATEWAY, index.gateway),
        FilterResult(
            reasons.TAINTED, ClusterSet(everything & ~tainted(overlay, deployment))
        ),
        FilterResult(
            reasons.FEATURE_MISSING,
            ClusterSet(everything & ~lacking(overlay, deployment)),
        ),
        FilterResult(reasons.NO_POOLS, index.with_pools),
    ]
    if compiled is not None:
        found.append(FilterResult(reasons.NO_POOL_MATCHES, overlay.matching(compiled)))
    return found


def tainted(overlay: FleetOverlay, deployment: DeploymentView) -> ClusterSet:
    """Return the clusters with an untolerated taint.

    Equal lists of taints are checked once.
    """
    found = 0
    for taints, clusters in overlay.index.tainted.items():
        if untolerated(taints, deployment.tolerations) is not None:
            found |= clusters
    return ClusterSet(found)


def missing_features(
    missing: Iterable[str], deployment: DeploymentView
) -> tuple[str, ...]:
    """Return which of these missing features the deployment uses."""
    return tuple(key for key in missing if key in deployment.features)


def lacking(overlay: FleetOverlay, deployment: DeploymentView) -> ClusterSet:
    """Return the clusters that lack a feature of the deployment.

    Equal lists of missing features are checked once.
    """
    found = 0
    for missing, clusters in overlay.index.lacking.items():
        if missing_features(missing, deployment):
            found |= clusters
    return ClusterSet(found)


def passing(results: Iterable[FilterResult], everything: ClusterSet) -> ClusterSet:
    """Return the clusters that pass every filter."""
    found: int = everything
    for result in results:
        found &= result.passing
    return ClusterSet(found)


def hold_reason(deployment: DeploymentView) -> str:
    """Return why the deployment's cache holds back new replicas, or ""."""
    cache = deployment.cache
    if cache.state == "Unresolved":
        return f"Waiting for ModelCache {cache.name}"
    if cache.state == "Absent":
        return f"ModelCache {cache.name} not found; holding replica placement"
    return ""
