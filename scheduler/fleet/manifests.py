"""Read manifests into the scheduler's views.

This is the only module that reads the wire form of InferenceCluster, ModelDeployment
and ModelCache; `replica_manifests` reads ModelReplica. The readers are as lenient as
the models of these kinds: an absent claim means DRA, an absent or negative count is
zero, and unusable values never match. The live scheduler itself reads clusters, so
their types are checked. Callers validate a deployment before they read it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from api_types import labels
from api_types.pins.features import used_features
from api_types.resources.parts.referenced_caches import model_cache
from scheduler.fleet.combined_cache import cache_name
from scheduler.hardware.device_sets import device_set
from scheduler.model.digests import digest_of
from scheduler.model.fields import JsonFields
from scheduler.model.inputs import (
    AdmissionView,
    CacheView,
    ClusterTaint,
    ClusterToleration,
    ClusterView,
    DeploymentView,
    EngineView,
    MemberView,
    PoolObservation,
    PoolView,
    QueueView,
    RequestView,
)
from scheduler.model.policy import (
    AffinityTerm,
    DrainPolicy,
    PlacementPolicy,
    RolloutPolicy,
    SpreadConstraint,
)

Tree = Mapping[str, Any]
_NOTHING = JsonFields({}, "")


def cluster_view(manifest: Tree, *, accounted: bool = True) -> ClusterView:
    """Read an InferenceCluster with its status.

    `status.gpuPools` are the schedulable pools; `spec.nodePools` adds each pool's class
    and network. The cluster is ready if its condition Ready has exactly the status
    "True".

    Raises:
        ValueError: a field has the wrong type, or a name is missing; the message names
            the cluster and the field.

    """
    name = JsonFields(manifest, "InferenceCluster").object("metadata").name("name")
    tree = JsonFields(manifest, f"InferenceCluster {name}: ")
    metadata, spec, status = (
        tree.object("metadata"),
        tree.object("spec"),
        tree.object("status"),
    )
    own_labels = metadata.text_map("labels")
    declared = {pool.name("name"): pool for pool in spec.objects("nodePools")}
    capacity = status.object("capacity")
    observed = {pool.name("name"): pool for pool in reversed(capacity.objects("pools"))}
    published = {pool.name("name") for pool in status.objects("gpuPools")}
    return ClusterView(
        name=name,
        labels=own_labels,
        taints=tuple(
            ClusterTaint(t.name("key"), t.text("value"), t.name("effect"))
            for t in spec.objects("taints")
        ),
        ready=any(
            c.text("type") == "Ready" and c.text("status") == "True"
            for c in status.objects("conditions")
        ),
        gateway_address=status.object("gateway").text("address"),
        deleting=bool(metadata.text("deletionTimestamp")),
        cache_storage_class=status.object("cache").text("storageClassName"),
        pools=tuple(
            _pool_view(
                name,
                own_labels,
                pool,
                declared.get(pool.name("name"), _NOTHING),
                _observed(pool, capacity, observed),
            )
            for pool in status.objects("gpuPools")
        ),
        queues=tuple(_queue_view(queue) for queue in capacity.objects("queues")),
        admission=tuple(
            _admission_view(seen) for seen in capacity.objects("admission")
        ),
        observed_at=capacity.whole("observedAt"),
        accounted=accounted,
        generation=metadata.whole("generation"),
        unpublished=tuple(
            (name, pool.text("className"))
            for name, pool in declared.items()
            if name not in published
        ),
        missing_features=status.texts("missingFeatures"),
    )


def _pool_view(
    cluster: str,
    cluster_labels: Mapping[str, str],
    published: JsonFields,
    declared: JsonFields,
    observed: JsonFields | None,
) -> PoolView:
    name = published.name("name")
    nodes = max(0, published.whole("nodes"))
    return PoolView(
        name=name,
        nodes=nodes,
        device_set=device_set(published.objects("devices")),
        class_name=declared.text("className"),
        class_missing=published.flag("classMissing"),
        unusable=published.text("unusable"),
        shortage=published.text("shortage"),
        network_domain=cluster_labels.get(labels.NETWORK_DOMAIN)
        or network_domain(cluster, name, declared.object("fabric")),
        price_milli=published.whole("priceMilli", -1),
        observed=None
        if observed is None
        else _pool_observation(observed, nodes, declared),
    )


def _observed(
    published: JsonFields, capacity: JsonFields, observed: Mapping[str, JsonFields]
) -> JsonFields | None:
    """Return a capacity adapter's observation of a published pool."""
    if not capacity.tree:
        return published.object("observed") if "observed" in published else None
    at = capacity.whole("observedAt")
    seen = observed.get(published.name("name"))
    if seen is None:
        # The adapter lists other pools but not this one, so it found no nodes of it.
        return JsonFields({"schedulable": 0, "total": 0, "observedAt": at}, capacity.at)
    counts = {
        "schedulable": seen.whole("nodesSchedulable"),
        "total": seen.whole("nodesTotal"),
        "foreign": seen.whole("foreignNodes"),
    }
    return JsonFields({**counts, "observedAt": at}, seen.at)


def _growable(observed: JsonFields, nodes: int, declared: JsonFields) -> int:
    """Return the nodes that an autoscaled pool may still add; a fixed pool adds none."""
    if (
        "growable" in observed
        or "total" not in observed
        or not declared.whole("maxNodeCount")
    ):
        return observed.whole("growable")
    return max(0, nodes - observed.whole("total"))


def _queue_view(tree: JsonFields) -> QueueView:
    return QueueView(
        tree.name("name"),
        tree.texts("tenants"),
        tree.texts("pools"),
        tree.whole("free", -1),
    )


def _admission_view(tree: JsonFields) -> AdmissionView:
    return AdmissionView(
        tree.name("workload"),
        tree.name("state"),
        tree.text("reason"),
        tree.whole("since"),
    )


def _pool_observation(
    tree: JsonFields, nodes: int, declared: JsonFields
) -> PoolObservation:
    """Read a capacity adapter's observation of a pool, in nodes; `observedAt` is in ms."""
    return PoolObservation(
        schedulable=tree.whole("schedulable", -1),
        growable=_growable(tree, nodes, declared),
        foreign=tree.whole("foreign"),
        queue_free=tree.whole("queueFree", -1),
        admitted=tree.whole("admitted"),
        observed_at=tree.whole("observedAt"),
    )


def network_domain(cluster: str, pool: str, fabric: JsonFields) -> str:
    """Return the name of the network that a pool's nodes share.

    It is a named fabric, else the pool's own fast network, else "" for the cluster's
    network.
    """
    named = fabric.object("infiniband").text("fabric")
    if named:
        return named
    return f"{cluster}/{pool}" if fabric.text("type") in ("EFA", "InfiniBand") else ""


def deployment_view(manifest: Tree, cache: Tree | None = None) -> DeploymentView:
    """Read a ModelDeployment in its canonical form.

    `cache` is the referenced ModelCache, or several combined (`combined_cache`): its
    manifest, or `{"name", "state": "Absent"}`, or `{"name", "state": "Present",
    "manifest"}`. A referenced cache that is not passed counts as not read yet.
    """
    metadata, spec = manifest["metadata"], manifest["spec"]
    template = spec["template"]["spec"]
    rollout = (manifest.get("status") or {}).get("rollout") or {}
    adoption = rollout.get("adoption") or 0
    return DeploymentView(
        namespace=metadata.get("namespace") or "default",
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        generation=metadata.get("generation") or 0,
        replicas=spec["replicas"],
        match_labels=_match_labels(template.get("clusterSelector")),
        tolerations=tuple(
            ClusterToleration(
                t.get("key") or "",
                t.get("operator") or "Equal",
                t.get("value") or "",
                t.get("effect") or "",
            )
            for t in template.get("tolerations") or ()
        ),
        cache=cache_view(cache_name(cache or {}) or model_cache(template), cache),
        serving_mode=(template.get("serving") or {}).get("mode") or "Unified",
        engines=tuple(_engine_view(engine) for engine in template["engines"]),
        template=template_digest(template, adoption),
        labels=dict(metadata.get("labels") or {}),
        policy=_policy(spec),
        features=used_features(template["engines"]),
    )


def cache_view(name: str, cache: Tree | None) -> CacheView:
    """Read the cache of a deployment.

    While a cache is missing or being deleted, no new replicas are placed.
    """
    if not name:
        return CacheView()
    if not cache:
        return CacheView("Unresolved", name)
    manifest = cache if "metadata" in cache else cache.get("manifest") or {}
    state = cache.get("state") or ("Present" if manifest else "Absent")
    if state != "Present" or manifest.get("metadata", {}).get("deletionTimestamp"):
        return CacheView("Unresolved" if state == "Unresolved" else "Absent", name)
    phases = {
        c["name"]: c.get("phase") or "Pending"
        for c in (manifest.get("status") or {}).get("clusters") or ()
    }
    return CacheView(
        "Present",
        name,
        _match_labels((manifest.get("spec") or {}).get("clusterSelector")),
        phases,
    )


def _match_labels(selector: Tree | None) -> dict[str, str]:
    return dict((selector or {}).get("matchLabels") or {})


def _engine_view(engine: Tree) -> EngineView:
    members = tuple(
        MemberView(
            role=member.get("role") or "Standalone",
            worker_nodes=(member.get("worker") or {}).get("nodes") or 1,
            requests=tuple(
                _request_view(request)
                for request in (member.get("nodeSelector") or {}).get("devices") or ()
            ),
            pods_per_node=member.get("podsPerNode") or 1,
        )
        for member in engine["members"]
    )
    return EngineView(
        engine["name"],
        members,
        engine.get("copies") or 1,
        engine.get("phase") or "",
        bool(engine.get("spanPools")),
    )


def _request_view(request: Tree) -> RequestView:
    count = request.get("count")
    return RequestView(
        request["name"],
        1 if count is None else count,
        tuple(s["cel"] for s in request.get("selectors") or ()),
    )


def template_digest(spec: Tree, adoption: int = 0) -> str:
    """Return a digest of the template fields that a replica copies.

    `adoption` is the number of a rollout without a template change, which replaces pods
    that would be rendered differently now. Cluster selectors and tolerations are not
    copied, so changing them restarts nothing. The resolved requests are compared with
    the placement instead.
    """
    engines = [
        _copied_engine(engine)
        for engine in sorted(spec["engines"], key=lambda engine: str(engine["name"]))
    ]
    parts = [spec.get("modelCacheRef"), spec.get("serving"), engines]
    if adoption:
        parts.append(adoption)
    return digest_of(parts)


def _copied_engine(engine: Tree) -> dict[str, Any]:
    placed = ("nodeSelector", "nodePoolName", "deviceRequests")
    members = [_without(member, placed) for member in engine["members"]]
    return {**_without(engine, ("members", "spanPools")), "members": members}


def _without(tree: Tree, keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in tree.items() if key not in keys}


def _policy(spec: Tree) -> PlacementPolicy:
    rollout, drain, scheduling = (
        spec.get("rollout") or {},
        spec.get("drain") or {},
        spec.get("scheduling") or {},
    )
    return PlacementPolicy(
        rollout=RolloutPolicy(
            type=rollout.get("type") or "Rolling",
            max_unavailable=rollout.get("maxUnavailable"),
            max_surge=rollout.get("maxSurge") or 0,
            partition=rollout.get("partition") or 0,
            paused=bool(rollout.get("paused")),
        ),
        drain=DrainPolicy(
            drain.get("maxUnavailable", "100%"), drain.get("deadlineSeconds") or 0
        ),
        profile=scheduling.get("profile") or "",
        priority_class=scheduling.get("priorityClassName") or "",
        preemption=scheduling.get("preemptionPolicy") or "Never",
        min_available=scheduling.get("minAvailable") or 0,
        topology_spread=tuple(
            SpreadConstraint(
                t["topologyKey"],
                t.get("maxSkew") or 1,
                t.get("whenUnsatisfiable") or "DoNotSchedule",
                t.get("minDomains") or 0,
            )
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
