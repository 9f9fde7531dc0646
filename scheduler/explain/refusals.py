"""Texts for the rejection of a replica by a cluster, for headlines and reports."""

from __future__ import annotations

from scheduler.fleet.cluster_index import ClusterInfo, ClusterSet
from scheduler.hardware.node_fitting import Trial
from scheduler.model import reasons
from scheduler.model.inputs import DeploymentView
from scheduler.placement.placer import ReplicaPlacer

SYNTHETIC_TEXT = (
    "its requests match synthetic devices only, so nothing would be claimed; devices with "
    "claim: Slot are counted without a claim"
)


def filter_text(code: str, deployment: DeploymentView, what: str = "") -> str:
    """Return the headline text of a filter code.

    `what` is the engine, taint, feature or rule.
    """
    return {
        reasons.LABEL_MISMATCH: "didn't match clusterSelector",
        reasons.CACHE_FOOTPRINT: f"are outside ModelCache {deployment.cache.name}'s footprint",
        reasons.CACHE_INCAPABLE: "can't stage ModelCache",
        reasons.DELETING: "are being deleted",
        reasons.NOT_READY: "aren't Ready",
        reasons.NO_GATEWAY: "have no gateway address",
        reasons.TAINTED: f"had untolerated taint {{{what}}}",
        reasons.FEATURE_MISSING: f"lack {what}",
        reasons.NO_POOLS: "publish no pools",
        reasons.NO_POOL_MATCHES: f"had no pool for engine {what}",
        reasons.INSUFFICIENT_NODES: f"had too few free nodes for engine {what}",
        reasons.QUOTA_EXCEEDED: f"were over quota {what}".rstrip(),
        reasons.POLICY: f"violated {what}",
    }[code]


def refusal(
    placer: ReplicaPlacer, info: ClusterInfo, trial: Trial, allowed: ClusterSet
) -> tuple[str, str] | None:
    """Return code and text of the rejection of one more replica, or None if it fits.

    The cluster must pass the filters. `allowed` are the clusters that the placer's
    constraints allow.
    """
    if trial.failed >= 0:
        return refused_by(placer, trial)
    if not allowed >> info.rank & 1:
        rule = placer.constraints.violated(info, placer.own)
        return reasons.POLICY, filter_text(reasons.POLICY, placer.deployment, rule)
    return None


def refused_by(placer: ReplicaPlacer, trial: Trial) -> tuple[str, str]:
    """Return code and text of a failed trial."""
    deployment = placer.deployment
    if trial.over_quota:
        return reasons.POLICY, filter_text(
            reasons.QUOTA_EXCEEDED, deployment, f"({trial.violation})"
        )
    if trial.violation:
        return reasons.POLICY, filter_text(reasons.POLICY, deployment, trial.violation)
    engine = placer.compiled.engines[trial.failed].name
    return reasons.INSUFFICIENT_NODES, filter_text(
        reasons.INSUFFICIENT_NODES, deployment, engine
    )
