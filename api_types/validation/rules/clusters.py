"""Rules for an InferenceCluster.

The clouds would report most of these errors too, but only during the creation of a
pool, long after `apply` succeeded.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from api_types import names
from api_types.resources.inference_cluster import (
    ClusterOrigin,
    ExistingCluster,
    InferenceClusterSpec,
    NodePool,
)
from api_types.validation.rules.metadata import is_label_value
from api_types.validation.rules.rule import (
    Finding,
    Findings,
    RuleContext,
    Rules,
)

NODES_MAX = 1000
VERSION_LENGTH_MAX = 16

_AKS_POOL_NAME = re.compile(r"[a-z][a-z0-9]{0,11}")


@dataclass(frozen=True)
class ZoneRule:
    """The number of zones in a pool of a source, and the length of their names."""

    required: bool
    count_max: int
    length_max: int


ZONES = {
    "GKE": ZoneRule(required=True, count_max=8, length_max=63),
    "EKS": ZoneRule(required=False, count_max=8, length_max=63),
    "AKS": ZoneRule(required=False, count_max=3, length_max=8),
}
MAXIMUM_WITH_MINIMUM = frozenset({"Nebius", "Vultr"})
FABRICS = {
    "None": None,
    "EFA": frozenset({"EKS"}),
    "InfiniBand": frozenset({"Nebius", "AKS"}),
}


def source_block_is_present(origin: ClusterOrigin, context: RuleContext) -> Findings:
    """Require the block of the source."""
    block = origin.source.lower()
    if getattr(origin, block) is None:
        yield context.error(f"required because source is {origin.source}", block)


def version_fits_the_cloud(origin: ClusterOrigin, context: RuleContext) -> Findings:
    """Limit versions to the 1 to 16 characters that the clouds accept."""
    block = getattr(origin, origin.source.lower())
    version = getattr(block, "kubernetes_version", "1")
    if not 1 <= len(version) <= VERSION_LENGTH_MAX:
        yield context.error(
            f"must be 1 to {VERSION_LENGTH_MAX} characters, got {len(version)}",
            origin.source.lower(),
            "kubernetesVersion",
        )


def project_is_deprecated(origin: ClusterOrigin, context: RuleContext) -> Findings:
    """Warn of a project in the spec, because the credentials now determine it."""
    if origin.gke is not None and origin.gke.project is not None:
        yield context.warning(
            "deprecated; it overrides the project of the credentials", "gke", "project"
        )


def pools_fit_the_source(spec: InferenceClusterSpec, context: RuleContext) -> Findings:
    """Check that each pool can be created, or exist, on this source."""
    for index, pool in enumerate(spec.node_pools or ()):
        at = RuleContext(
            (*context.at, "nodePools", index), context.manifest, context.checks
        )
        for rule in (_name, _zones, _counts, _fabric, _without_effect):
            yield from rule(pool, spec.cluster.source, at)


def _name(pool: NodePool, source: str, context: RuleContext) -> Iterator[Finding]:
    if not pool.name or not is_label_value(pool.name):
        yield context.error(
            f'"{pool.name}" is not usable as a node label value', "name"
        )
    elif source == "AKS" and not _AKS_POOL_NAME.fullmatch(pool.name):
        yield context.error(
            "AKS pool names are at most 12 lower-case letters or digits, letter first",
            "name",
        )


def _zones(pool: NodePool, source: str, context: RuleContext) -> Iterator[Finding]:
    rule = ZONES.get(source)
    if rule is None:
        return
    zones = pool.zones or ()
    if rule.required and not zones:
        yield context.error(f"at least one zone is required on {source}", "zones")
    if len(zones) > rule.count_max:
        yield context.error(
            f"at most {rule.count_max} zones on {source}, got {len(zones)}", "zones"
        )
    for index, zone in enumerate(zones):
        if not 1 <= len(zone) <= rule.length_max:
            yield context.error(
                f"must be 1 to {rule.length_max} characters on {source}, got {len(zone)}",
                "zones",
                index,
            )
    if source == "GKE" and len(zones) > 1:
        total = len(zones) * pool.nodes_max
        yield context.warning(
            f"GKE counts nodes per zone: {len(zones)} zones may reach {total} "
            f"nodes, but the scheduler counts {pool.nodes_max}",
            "zones",
        )


def _counts(pool: NodePool, source: str, context: RuleContext) -> Iterator[Finding]:
    low, high = pool.min_node_count, pool.max_node_count
    if low is not None and high is None and source in MAXIMUM_WITH_MINIMUM:
        yield context.error(
            f"required because minNodeCount is set on {source}", "maxNodeCount"
        )
    if source == "Existing":
        return
    least = 1 if source == "Vultr" else 0
    counts = (
        ("nodeCount", pool.node_count),
        ("minNodeCount", low),
        ("maxNodeCount", high),
    )
    for field, count in counts:
        if count is not None and not least <= count <= NODES_MAX:
            yield context.error(
                f"must be between {least} and {NODES_MAX} on {source}, got {count}",
                field,
            )
    if low is not None and high is not None and low > high:
        yield context.error(
            f"minimum exceeds maximum: {low} is more than maxNodeCount {high}",
            "minNodeCount",
        )
        return
    start = pool.node_count if high is None else min(pool.node_count, high)
    start = max(low or 0, start)
    if start != pool.node_count and "node_count" in pool.model_fields_set:
        yield context.warning(
            f"{pool.node_count} is outside minNodeCount to maxNodeCount; "
            f"starts at {start}",
            "nodeCount",
        )


def _fabric(pool: NodePool, source: str, context: RuleContext) -> Iterator[Finding]:
    if pool.fabric is None:
        return
    if pool.fabric.infiniband is not None and pool.fabric.type != "InfiniBand":
        yield context.error(
            f"allowed only when fabric.type is InfiniBand, it is {pool.fabric.type}",
            "fabric",
            "infiniband",
        )
    if (
        source == "Nebius"
        and pool.fabric.type == "InfiniBand"
        and pool.fabric.infiniband is None
    ):
        yield context.error("required for InfiniBand on Nebius", "fabric", "infiniband")


def _without_effect(
    pool: NodePool, source: str, context: RuleContext
) -> Iterator[Finding]:
    if pool.capacity_block is not None and source != "EKS":
        yield context.warning(f"setting has no effect on {source}", "capacityBlock")
    sources = FABRICS[pool.fabric.type] if pool.fabric else None
    if pool.fabric and sources is not None and source not in sources:
        yield context.warning(
            f"{pool.fabric.type}: setting has no effect on {source}", "fabric", "type"
        )


def identity_has_no_effect(existing: ExistingCluster, context: RuleContext) -> Findings:
    """Warn of a cloud identity for which no worker creates tokens."""
    ref = existing.identity_secret_ref
    if ref is not None and ref.type == "NebiusServiceAccountCredentials":
        yield context.warning(
            f"{ref.type}: setting has no effect: the kubeconfig needs its own user",
            "identitySecretRef",
        )


def identity_is_of_the_cluster(
    existing: ExistingCluster, context: RuleContext
) -> Findings:
    """Reject a credential that creates clusters.

    It has more permissions than the use of a cluster needs.
    """
    ref = existing.identity_secret_ref
    if ref is not None and names.creates_clusters(ref.name, ref.key):
        yield context.error(
            f"Secret {ref.name} is for creating clusters; store an identity under another name",
            "identitySecretRef",
            "name",
        )


RULES: Rules = {
    ExistingCluster: (identity_has_no_effect, identity_is_of_the_cluster),
    ClusterOrigin: (
        source_block_is_present,
        version_fits_the_cloud,
        project_is_deprecated,
    ),
    InferenceClusterSpec: (pools_fit_the_source,),
}
