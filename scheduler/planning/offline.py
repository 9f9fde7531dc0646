"""Plans from manifests alone, without any control plane: `modelplane plan --offline` and `modelplane render`.

Where a status is missing, it is derived from the specs: pools from classes, the storage class from the source. A cluster
counts as Ready with a gateway unless its status has another value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from api_types import labels
from api_types.prices import price_milli
from api_types.resources.parts.referenced_caches import referenced_caches
from scheduler.decide import ExplainedDecision
from scheduler.fleet.combined_cache import combined_cache
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.manifests import cluster_view, deployment_view, network_domain
from scheduler.fleet.replica_manifests import ledger_entry, with_draws
from scheduler.fleet.reserved_entry import EntryPolicy
from scheduler.hardware.device_sets import device_set
from scheduler.model.decision import Decision
from scheduler.model.fields import Fields
from scheduler.model.inputs import ClusterView, DeploymentView, LedgerEntry, PoolView
from scheduler.model.policy import SchedulerOptions
from scheduler.model.rules import PlacementRules
from scheduler.planning.settle import settle_and_explain
from scheduler.planning.trees import decision_tree
from scheduler.planning.whatif import Changes, plan

Tree = Mapping[str, Any]
# Stands for an address that is not known offline; it is never shown.
UNKNOWN_GATEWAY = "unknown"
_STORAGE_CLASSES = {"GKE": "modelplane-rwx", "EKS": "modelplane-rwx-efs", "AKS": "modelplane-rwx-fs", "Nebius": "modelplane-rwx-fs"}


@dataclass(slots=True)
class Documents:
    """Manifests by what placement needs of them; deployments in document order."""

    classes: dict[str, Tree] = field(default_factory=dict)
    clusters: dict[str, Tree] = field(default_factory=dict)
    caches: dict[tuple[str, str], Tree] = field(default_factory=dict)
    replicas: list[Tree] = field(default_factory=list)
    deployments: list[Tree] = field(default_factory=list)

    @property
    def placed(self) -> list[Tree]:
        """The deployments that request placements: one that is being deleted requests none, and its replicas stay until they are gone."""
        return [manifest for manifest in self.deployments if not (manifest.get("metadata") or {}).get("deletionTimestamp")]


def sort_documents(documents: Iterable[Tree]) -> Documents:
    """Sort manifests by kind; kinds that placement does not read are left out, a later object of a name replaces an earlier one."""
    found = Documents()
    deployments: dict[tuple[str, str], Tree] = {}
    for document in documents:
        metadata = document.get("metadata") or {}
        name, namespace = metadata.get("name", ""), metadata.get("namespace") or "default"
        kind = document.get("kind")
        if kind == "InferenceClass":
            found.classes[name] = document
        elif kind == "InferenceCluster":
            found.clusters[name] = document
        elif kind == "ModelCache":
            found.caches[namespace, name] = document
        elif kind == "ModelReplica":
            found.replicas.append(document)
        elif kind == "ModelDeployment":
            deployments[namespace, name] = document
    found.deployments = list(deployments.values())
    return found


def offline_cluster(manifest: Tree, classes: Mapping[str, Tree]) -> ClusterView:
    """Read an InferenceCluster whose status may be missing."""
    view = cluster_view(manifest)
    status = manifest.get("status") or {}
    conditions = [c for c in status.get("conditions") or () if c.get("type") == "Ready"]
    gateway = status.get("gateway") or {}
    address = view.gateway_address if "address" in gateway else UNKNOWN_GATEWAY
    storage = view.cache_storage_class if "cache" in status else _storage_class(manifest)
    pools = view.pools if "gpuPools" in status else tuple(_computed_pools(manifest, classes))
    pools = tuple(pool if pool.price_milli >= 0 else replace(pool, price_milli=price_of(classes.get(pool.class_name))) for pool in pools)
    published = {pool.name for pool in pools}
    return replace(
        view,
        ready=view.ready or not conditions,
        gateway_address=address,
        cache_storage_class=storage,
        pools=pools,
        unpublished=tuple((name, used) for name, used in view.unpublished if name not in published),
    )


def _storage_class(manifest: Tree) -> str:
    cluster = (manifest.get("spec") or {}).get("cluster") or {}
    source = cluster.get("source") or ""
    if source == "Existing":
        return str(((cluster.get("existing") or {}).get("cache") or {}).get("storageClassName") or "")
    return _STORAGE_CLASSES.get(source, "")


def _computed_pools(manifest: Tree, classes: Mapping[str, Tree]) -> Iterable[PoolView]:
    """Give the pools that would be published: those whose class exists and lists devices."""
    name = manifest["metadata"]["name"]
    domain = (manifest["metadata"].get("labels") or {}).get(labels.NETWORK_DOMAIN)
    for pool in (manifest.get("spec") or {}).get("nodePools") or ():
        devices = ((classes.get(pool["className"]) or {}).get("spec") or {}).get("devices")
        if devices:
            yield PoolView(
                pool["name"],
                pool.get("maxNodeCount") or (1 if pool.get("nodeCount") is None else pool["nodeCount"]),
                device_set(Fields({"devices": devices}, f"InferenceClass {pool['className']}: ").objects("devices"), count_default=1),
                pool["className"],
                network_domain=domain or network_domain(name, pool["name"], Fields(pool.get("fabric"), f"InferenceCluster {name}: fabric")),
            )


def price_of(manifest: Tree | None) -> int:
    """Read what a node of a class costs per hour, in thousandths; negative when that is unknown."""
    return price_milli(((manifest or {}).get("metadata") or {}).get("annotations") or {})


def offline_fleet(documents: Documents, options: SchedulerOptions | None = None) -> Fleet:
    """Build a fleet from clusters, classes and the replicas that exist."""
    fleet = Fleet(options)
    fleet.class_names = frozenset(documents.classes)
    for manifest in documents.clusters.values():
        fleet.put_cluster(offline_cluster(manifest, documents.classes))
    rules = PlacementRules.of(fleet.options)
    for replica in _replicas(documents, fleet.options):
        fleet.put_replica(with_draws(replica, fleet.clusters.get(replica.cluster), rules.matching) if rules.count_devices else replica)
    return fleet


def _replicas(documents: Documents, options: SchedulerOptions) -> Iterable[LedgerEntry]:
    """Read the ModelReplicas. What the live ledger keeps of their deployment is read from it, so that it protects them here too."""
    owners = {
        (manifest["metadata"].get("namespace") or "default", manifest["metadata"]["name"]): deployment_view(manifest)
        for manifest in documents.deployments
    }
    for manifest in documents.replicas:
        replica = ledger_entry(manifest)
        owner = owners.get((replica.namespace, replica.deployment))
        yield replica if owner is None else EntryPolicy.of(owner, options).given_to(replica)


def offline_deployment(manifest: Tree, documents: Documents) -> DeploymentView:
    """Read a deployment with its caches from the same documents; a cache that is not among them counts as absent."""
    namespace = manifest["metadata"].get("namespace") or "default"
    names = referenced_caches(manifest["spec"]["template"]["spec"])
    caches = [documents.caches.get((namespace, name)) or {"name": name, "state": "Absent"} for name in names]
    return deployment_view(manifest, combined_cache(caches))


def decide_documents(
    documents: Documents, options: SchedulerOptions | None, now: int, is_explained: Callable[[Decision], bool] = lambda _: False
) -> list[ExplainedDecision]:
    """Decide every ModelDeployment among the documents that is not being deleted to its end; the decisions come in document order.

    Deployments are decided by priority, then document order. Existing ModelReplicas hold their nodes and their place.
    """
    views = [offline_deployment(manifest, documents) for manifest in documents.placed]
    found = settle_and_explain(offline_fleet(documents, options), views, now, is_explained)
    return [found[view.namespace, view.name] for view in views]


def plan_offline(
    documents: Sequence[Tree], options: SchedulerOptions | None = None, now: int = 0, *, with_steps: bool = False
) -> dict[str, Any]:
    """Plan every ModelDeployment among manifests in canonical form, which have their status where there is one.

    Gives the JSON tree of `plan -o json`: one decision per deployment in document order, and on request the steps that budgets stretch
    them over.
    """
    found = sort_documents(documents)
    tree: dict[str, Any] = {"decisions": [decision_tree(explained) for explained in decide_documents(found, options, now, lambda _: True)]}
    if with_steps:
        views = tuple(offline_deployment(manifest, found) for manifest in found.placed)
        tree["steps"] = plan(offline_fleet(found, options), Changes(deployments=views), (), now).steps
    return tree
