"""Plans from manifests alone, without a control plane.

`modelplane plan --offline` and `modelplane render` use them. A missing status is
derived from the specs: pools from classes, the storage class from the source. A cluster
counts as Ready with a gateway unless its status says otherwise.
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
from scheduler.model.fields import JsonFields
from scheduler.model.inputs import ClusterView, DeploymentView, LedgerEntry, PoolView
from scheduler.model.policy import SchedulerOptions
from scheduler.model.rules import PlacementRules
from scheduler.planning.settle import settle_and_explain
from scheduler.planning.trees import decision_tree
from scheduler.planning.whatif import Changes, plan

Tree = Mapping[str, Any]
# Placeholder for an address that is not known offline; it is never shown.
UNKNOWN_GATEWAY = "unknown"
_STORAGE_CLASSES = {
    "GKE": "modelplane-rwx",
    "EKS": "modelplane-rwx-efs",
    "AKS": "modelplane-rwx-fs",
    "Nebius": "modelplane-rwx-fs",
}


@dataclass(slots=True)
class Documents:
    """Manifests by kind; deployments are in document order."""

    classes: dict[str, Tree] = field(default_factory=dict)
    clusters: dict[str, Tree] = field(default_factory=dict)
    caches: dict[tuple[str, str], Tree] = field(default_factory=dict)
    replicas: list[Tree] = field(default_factory=list)
    deployments: list[Tree] = field(default_factory=list)

    @property
    def placed(self) -> list[Tree]:
        """Return the deployments that request placements.

        A deployment that is being deleted requests none, and its replicas stay until
        they are gone.
        """
        return [
            manifest
            for manifest in self.deployments
            if not (manifest.get("metadata") or {}).get("deletionTimestamp")
        ]


def sort_documents(documents: Iterable[Tree]) -> Documents:
    """Sort manifests by kind.

    Kinds that placement does not read are left out. A later object replaces an earlier
    one of the same name.
    """
    found = Documents()
    deployments: dict[tuple[str, str], Tree] = {}
    for document in documents:
        metadata = document.get("metadata") or {}
        name, namespace = (
            metadata.get("name", ""),
            metadata.get("namespace") or "default",
        )
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
    storage = (
        view.cache_storage_class if "cache" in status else _storage_class(manifest)
    )
    pools = (
        view.pools
        if "gpuPools" in status
        else tuple(_computed_pools(manifest, classes))
    )
    pools = tuple(_priced(pool, classes) for pool in pools)
    published = {pool.name for pool in pools}
    return replace(
        view,
        ready=view.ready or not conditions,
        gateway_address=address,
        cache_storage_class=storage,
        pools=pools,
        unpublished=tuple(
            (name, used) for name, used in view.unpublished if name not in published
        ),
    )


def _priced(pool: PoolView, classes: Mapping[str, Tree]) -> PoolView:
    if pool.price_milli >= 0:
        return pool
    return replace(pool, price_milli=price_of(classes.get(pool.class_name)))


def _storage_class(manifest: Tree) -> str:
    cluster = (manifest.get("spec") or {}).get("cluster") or {}
    source = cluster.get("source") or ""
    if source == "Existing":
        cache = (cluster.get("existing") or {}).get("cache") or {}
        return str(cache.get("storageClassName") or "")
    return _STORAGE_CLASSES.get(source, "")


def _computed_pools(manifest: Tree, classes: Mapping[str, Tree]) -> Iterable[PoolView]:
    """Yield the pools that would be published: their class exists and has devices."""
    name = manifest["metadata"]["name"]
    domain = (manifest["metadata"].get("labels") or {}).get(labels.NETWORK_DOMAIN)
    for pool in (manifest.get("spec") or {}).get("nodePools") or ():
        class_name = pool["className"]
        spec = (classes.get(class_name) or {}).get("spec") or {}
        if not spec.get("devices"):
            continue
        nodes = 1 if pool.get("nodeCount") is None else pool["nodeCount"]
        devices = JsonFields(
            {"devices": spec["devices"]}, f"InferenceClass {class_name}: "
        ).objects("devices")
        fabric = JsonFields(pool.get("fabric"), f"InferenceCluster {name}: fabric")
        yield PoolView(
            pool["name"],
            pool.get("maxNodeCount") or nodes,
            device_set(devices, count_default=1),
            class_name,
            network_domain=domain or network_domain(name, pool["name"], fabric),
        )


def price_of(manifest: Tree | None) -> int:
    """Return the price of a node per hour in thousandths; negative if unknown."""
    return price_milli(
        ((manifest or {}).get("metadata") or {}).get("annotations") or {}
    )


def offline_fleet(
    documents: Documents, options: SchedulerOptions | None = None
) -> Fleet:
    """Build a fleet from clusters, classes and existing replicas."""
    fleet = Fleet(options)
    fleet.class_names = frozenset(documents.classes)
    for manifest in documents.clusters.values():
        fleet.put_cluster(offline_cluster(manifest, documents.classes))
    rules = PlacementRules.of(fleet.options)
    for replica in _replicas(documents, fleet.options):
        entry = replica
        if rules.count_devices:
            info = fleet.clusters.get(replica.cluster)
            entry = with_draws(replica, info, rules.matching)
        fleet.put_replica(entry)
    return fleet


def _replicas(documents: Documents, options: SchedulerOptions) -> Iterable[LedgerEntry]:
    """Read the ModelReplicas, with the policy of their deployments.

    The live ledger has that policy too, and it protects the replicas.
    """
    views = [deployment_view(manifest) for manifest in documents.deployments]
    owners = {(view.namespace, view.name): view for view in views}
    for manifest in documents.replicas:
        replica = ledger_entry(manifest)
        owner = owners.get((replica.namespace, replica.deployment))
        if owner is None:
            yield replica
        else:
            yield EntryPolicy.of(owner, options).given_to(replica)


def offline_deployment(manifest: Tree, documents: Documents) -> DeploymentView:
    """Read a deployment with its caches from the same documents.

    A cache that is not among them counts as absent.
    """
    namespace = manifest["metadata"].get("namespace") or "default"
    names = referenced_caches(manifest["spec"]["template"]["spec"])
    caches = [
        documents.caches.get((namespace, name)) or {"name": name, "state": "Absent"}
        for name in names
    ]
    return deployment_view(manifest, combined_cache(caches))


def decide_documents(
    documents: Documents,
    options: SchedulerOptions | None,
    now: int,
    is_explained: Callable[[Decision], bool] = lambda _: False,
) -> list[ExplainedDecision]:
    """Decide every ModelDeployment among the documents, up to its final state.

    Deployments that are being deleted are left out. Deployments are decided by
    priority, then in document order; the result is in document order. Existing
    ModelReplicas hold their nodes and their places.
    """
    views = [offline_deployment(manifest, documents) for manifest in documents.placed]
    found = settle_and_explain(
        offline_fleet(documents, options), views, now, is_explained
    )
    return [found[view.namespace, view.name] for view in views]


def plan_offline(
    documents: Sequence[Tree],
    options: SchedulerOptions | None = None,
    now: int = 0,
    *,
    with_steps: bool = False,
) -> dict[str, Any]:
    """Plan every ModelDeployment among manifests in canonical form.

    Return the JSON tree of `plan -o json`: one decision per deployment in document
    order. With `with_steps` it also has the steps into which budgets divide the change.
    """
    found = sort_documents(documents)
    tree: dict[str, Any] = {
        "decisions": [
            decision_tree(explained)
            for explained in decide_documents(found, options, now, lambda _: True)
        ]
    }
    if with_steps:
        views = tuple(offline_deployment(manifest, found) for manifest in found.placed)
        tree["steps"] = plan(
            offline_fleet(found, options), Changes(deployments=views), (), now
        ).steps
    return tree
