"""Manifests as the scheduler sees them.

The only place that reads the wire form of InferenceCluster, ModelDeployment and ModelCache; `replica_manifests` reads ModelReplica.
Readers are lenient where the kinds are: an absent claim is DRA, an absent or negative count is zero. Nothing is validated here; what
cannot be used never matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from api_types import labels
from scheduler.hardware.device_sets import device_set
from scheduler.model.digests import digest_of
from scheduler.model.inputs import (
    AdmissionView,
    CacheView,
    ClusterView,
    DeploymentView,
    EngineView,
    MemberView,
    PoolObservation,
    PoolView,
    QueueView,
    RequestView,
    Taint,
    Toleration,
)
from scheduler.model.policy import AffinityTerm, Drain, PlacementPolicy, Rollout, TopologySpread

Tree = Mapping[str, Any]


def cluster_view(manifest: Tree, *, accounted: bool = True) -> ClusterView:
    """Read an InferenceCluster with its status.

    `status.gpuPools` is what may be scheduled on; `spec.nodePools` adds each pool's class and network. Ready is the condition Ready with
    status exactly "True".
    """
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    name = metadata["name"]
    own_labels = dict(metadata.get("labels") or {})
    declared = {pool["name"]: pool for pool in spec.get("nodePools") or ()}
    capacity = status.get("capacity") or {}
    return ClusterView(
        name=name,
        labels=own_labels,
        taints=tuple(Taint(t["key"], t.get("value") or "", t["effect"]) for t in spec.get("taints") or ()),
        ready=any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ()),
        gateway_address=(status.get("gateway") or {}).get("address") or "",
        deleting=bool(metadata.get("deletionTimestamp")),
        cache_storage_class=(status.get("cache") or {}).get("storageClassName") or "",
        pools=tuple(
            _pool_view(name, own_labels, _with_capacity(pool, capacity), declared.get(pool["name"], {}))
            for pool in status.get("gpuPools") or ()
        ),
        queues=tuple(_queue_view(queue) for queue in capacity.get("queues") or ()),
        admission=tuple(_admission_view(seen) for seen in capacity.get("admission") or ()),
        observed_at=capacity.get("observedAt") or 0,
        accounted=accounted,
        generation=metadata.get("generation") or 0,
    )


def _pool_view(cluster: str, cluster_labels: Mapping[str, str], published: Tree, declared: Tree) -> PoolView:
    name = published["name"]
    observed = published.get("observed")
    return PoolView(
        name=name,
        nodes=max(0, published.get("nodes") or 0),
        device_set=device_set(published.get("devices") or ()),
        class_name=declared.get("className") or "",
        class_missing=bool(published.get("classMissing")),
        network_domain=cluster_labels.get(labels.NETWORK_DOMAIN) or network_domain(cluster, name, declared.get("fabric") or {}),
        price_milli=published.get("priceMilli", -1),
        observed=None if observed is None else _pool_observation(_with_growth(observed, published, declared)),
    )


def _with_capacity(published: Tree, capacity: Tree) -> Tree:
    """Add to a published pool what a capacity adapter observed of it."""
    seen = next((pool for pool in capacity.get("pools") or () if pool["name"] == published["name"]), None)
    if not capacity:
        return published
    at = capacity.get("observedAt") or 0
    if seen is None:
        # An adapter that lists pools and not this one saw none of its nodes.
        return {**published, "observed": {"schedulable": 0, "total": 0, "observedAt": at}}
    observed = {"schedulable": seen.get("nodesSchedulable") or 0, "total": seen.get("nodesTotal") or 0, "observedAt": at}
    return {**published, "observed": {**observed, "foreign": seen.get("foreignNodes") or 0}}


def _with_growth(observed: Tree, published: Tree, declared: Tree) -> Tree:
    """Add the nodes that an autoscaled pool may still get; a pool of fixed size gets none."""
    if "growable" in observed or "total" not in observed or not declared.get("maxNodeCount"):
        return observed
    return {**observed, "growable": max(0, (published.get("nodes") or 0) - observed["total"])}


def _queue_view(tree: Tree) -> QueueView:
    return QueueView(tree["name"], tuple(tree.get("tenants") or ()), tuple(tree.get("pools") or ()), tree.get("free", -1))


def _admission_view(tree: Tree) -> AdmissionView:
    return AdmissionView(tree["workload"], tree["state"], tree.get("reason") or "", tree.get("since") or 0)


def _pool_observation(tree: Tree) -> PoolObservation:
    """Read what a capacity adapter observed of a pool, in nodes; `observedAt` in ms."""
    return PoolObservation(
        schedulable=tree.get("schedulable", -1),
        growable=tree.get("growable", 0),
        foreign=tree.get("foreign", 0),
        queue_free=tree.get("queueFree", -1),
        admitted=tree.get("admitted", 0),
        observed_at=tree.get("observedAt", 0),
    )


def network_domain(cluster: str, pool: str, fabric: Tree) -> str:
    """Name the network that a pool's nodes share: a named fabric, else the pool's own fast network, else "" for the cluster's."""
    named = (fabric.get("infiniband") or {}).get("fabric")
    if named:
        return str(named)
    return f"{cluster}/{pool}" if fabric.get("type") in ("EFA", "InfiniBand") else ""


def deployment_view(manifest: Tree, cache: Tree | None = None) -> DeploymentView:
    """Read a ModelDeployment in its canonical form.

    `cache` is the referenced ModelCache: its manifest, or `{"name", "state": "Absent"}`, or `{"name", "state": "Present", "manifest"}`.
    A referenced cache that is not given counts as not read yet.
    """
    metadata, spec = manifest["metadata"], manifest["spec"]
    template = spec["template"]["spec"]
    return DeploymentView(
        namespace=metadata.get("namespace") or "default",
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        generation=metadata.get("generation") or 0,
        replicas=spec["replicas"],
        match_labels=_match_labels(template.get("clusterSelector")),
        tolerations=tuple(
            Toleration(t.get("key") or "", t.get("operator") or "Equal", t.get("value") or "", t.get("effect") or "")
            for t in template.get("tolerations") or ()
        ),
        cache=cache_view((template.get("modelCacheRef") or {}).get("name") or "", cache),
        serving_mode=(template.get("serving") or {}).get("mode") or "Unified",
        engines=tuple(_engine_view(engine) for engine in template["engines"]),
        template=template_digest(template),
        labels=dict(metadata.get("labels") or {}),
        policy=_policy(spec),
    )


def cache_view(name: str, cache: Tree | None) -> CacheView:
    """Read the cache of a deployment; one that is being deleted holds back new replicas like one that does not exist."""
    if not name:
        return CacheView()
    if not cache:
        return CacheView("Unresolved", name)
    manifest = cache if "metadata" in cache else cache.get("manifest") or {}
    state = cache.get("state") or ("Present" if manifest else "Absent")
    if state != "Present" or manifest.get("metadata", {}).get("deletionTimestamp"):
        return CacheView("Unresolved" if state == "Unresolved" else "Absent", name)
    phases = {c["name"]: c.get("phase") or "Pending" for c in (manifest.get("status") or {}).get("clusters") or ()}
    return CacheView("Present", name, _match_labels((manifest.get("spec") or {}).get("clusterSelector")), phases)


def _match_labels(selector: Tree | None) -> dict[str, str]:
    return dict((selector or {}).get("matchLabels") or {})


def _engine_view(engine: Tree) -> EngineView:
    members = tuple(
        MemberView(
            role=member.get("role") or "Standalone",
            worker_nodes=(member.get("worker") or {}).get("nodes") or 1,
            requests=tuple(_request_view(request) for request in (member.get("nodeSelector") or {}).get("devices") or ()),
            pods_per_node=member.get("podsPerNode") or 1,
        )
        for member in engine["members"]
    )
    return EngineView(engine["name"], members, engine.get("copies") or 1, engine.get("phase") or "", bool(engine.get("spanPools")))


def _request_view(request: Tree) -> RequestView:
    count = request.get("count")
    return RequestView(request["name"], 1 if count is None else count, tuple(s["cel"] for s in request.get("selectors") or ()))


def template_digest(spec: Tree) -> str:
    """Digest what a replica copies from its template, read from the template or from the replica.

    Selectors of clusters and tolerations are not copied, so changing them restarts nothing; what the requests resolved to is compared
    with its placement instead.
    """
    engines = [
        {
            **{key: value for key, value in engine.items() if key not in ("members", "spanPools")},
            "members": [
                {key: value for key, value in member.items() if key not in ("nodeSelector", "nodePoolName", "deviceRequests")}
                for member in engine["members"]
            ],
        }
        for engine in sorted(spec["engines"], key=lambda engine: str(engine["name"]))
    ]
    return digest_of([spec.get("modelCacheRef"), spec.get("serving"), engines])


def _policy(spec: Tree) -> PlacementPolicy:
    rollout, drain, scheduling = spec.get("rollout") or {}, spec.get("drain") or {}, spec.get("scheduling") or {}
    return PlacementPolicy(
        rollout=Rollout(
            type=rollout.get("type") or "Rolling",
            max_unavailable=rollout.get("maxUnavailable"),
            max_surge=rollout.get("maxSurge") or 0,
            partition=rollout.get("partition") or 0,
            paused=bool(rollout.get("paused")),
        ),
        drain=Drain(drain.get("maxUnavailable", "100%"), drain.get("deadlineSeconds") or 0),
        profile=scheduling.get("profile") or "",
        priority_class=scheduling.get("priorityClassName") or "",
        preemption=scheduling.get("preemptionPolicy") or "Never",
        min_available=scheduling.get("minAvailable") or 0,
        topology_spread=tuple(
            TopologySpread(t["topologyKey"], t.get("maxSkew") or 1, t.get("whenUnsatisfiable") or "DoNotSchedule", t.get("minDomains") or 0)
            for t in scheduling.get("topologySpread") or ()
        ),
        affinity=tuple(_terms(scheduling.get("affinity"))),
        anti_affinity=tuple(_terms(scheduling.get("antiAffinity"))),
        network_domain=scheduling.get("networkDomain") or "Ignore",
        gang_replicas=scheduling.get("gangReplicas") or 1,
        cache_required=scheduling.get("cacheRequired") or "",
    )


def _terms(affinity: Tree | None) -> Iterable[AffinityTerm]:
    for kind in ("required", "preferred"):
        for term in (affinity or {}).get(kind) or ():
            yield AffinityTerm(
                _match_labels(term.get("selector")),
                term.get("topologyKey") or "",
                tuple(term.get("namespaces") or ()),
                term.get("weight") or 0,
            )
