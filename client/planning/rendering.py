"""The Kubernetes objects that would be applied to clusters, from manifests and cluster facts alone.

A deployment is placed as `plan --offline` places it, and each of its new replicas is rendered by the code that the worker runs. Nothing has
an identity yet: every uid is zeros and every generation 1, so that equal input gives equal output.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from activities.render.cache.volumes import render_cache
from activities.render.inputs.facts import CacheInput, ClusterInput, InvalidFacts, ReplicaInput
from activities.render.inputs.findings import Findings, NotRenderable
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.rendered import Rendered
from activities.render.replica import render_replica
from api_types import labels
from api_types.clock import now_ms
from api_types.resources.model_cache import ModelCacheSpec
from api_types.resources.replica_spec import replica_spec
from client.errors import Refused
from client.refs.tree import Tree
from scheduler import Decision, Documents, SchedulerOptions, decide_documents, offline_cluster, reasons, sort_documents, to_wire

NO_UID = str(uuid.UUID(int=0))
FIRST_GENERATION = 1
_RENDERED = ("ModelDeployment", "ModelReplica", "ModelCache")
# Annotations of a cluster that are facts about it, and the fields they set.
_ANNOTATED = {labels.ROUTING: "routing", labels.SCHEDULER_TYPE: "scheduler_type", labels.MESH_PROVIDER: "mesh_provider"}


@dataclass(frozen=True)
class Output:
    """The objects of one replica or cache on one cluster, in the order in which they are applied; Secrets come without data."""

    title: str
    cluster: str
    objects: tuple[Tree, ...]


def render_all(
    trees: Sequence[Tree], given: Mapping[str, ClusterInput], settings: RenderSettings, policy: SchedulerOptions | None = None
) -> tuple[list[Output], tuple[str, ...]]:
    """Render every cache, replica and deployment among the objects, caches first, and give the warnings; `given` are facts by cluster.

    Deployments are placed by the fleet policy that is given. Raises `Refused` with everything that cannot be rendered.
    """
    if not any(tree["kind"] in _RENDERED for tree in trees):
        raise Refused(f"nothing to render among the objects; these can be: {', '.join(_RENDERED)}", next_step="add one of them with -f")
    documents = sort_documents(trees)
    findings = Findings()
    facts = {**_declared_facts(documents, findings), **given}
    jobs = [*_caches(documents, facts, settings, findings), *_replicas(documents, facts, settings, findings, policy)]
    outputs = [output for job in jobs if (output := _run(job, findings))]
    if findings.problems:
        raise Refused("not everything can be rendered", details=findings.problems, next_step="fix these problems and run the command again")
    return outputs, tuple(findings.warnings)


@dataclass(frozen=True)
class _Job:
    title: str
    cluster: str
    render: Callable[[], Rendered]


def _run(job: _Job, findings: Findings) -> Output | None:
    where = f"{job.title} on {job.cluster}"
    try:
        rendered = job.render()
    except NotRenderable as error:
        for problem in error.problems:
            findings.problem(where, problem)
        return None
    for warning in rendered.warnings:
        findings.warn(where, warning)
    if rendered.held:
        findings.warn(where, f"workloads are left out: {rendered.held}")
    objects = [*(copy.manifest for copy in rendered.copies), *(item.manifest for item in rendered.objects)]
    return Output(job.title, job.cluster, tuple(objects))


def _declared_facts(documents: Documents, findings: Findings) -> dict[str, ClusterInput]:
    """Give the facts that the clusters among the objects declare."""
    found: dict[str, ClusterInput] = {}
    for name, manifest in documents.clusters.items():
        annotations = manifest["metadata"].get("annotations") or {}
        declared = {field: annotations[key] for key, field in _ANNOTATED.items() if key in annotations}
        view = offline_cluster(manifest, documents.classes)
        address = ((manifest.get("status") or {}).get("gateway") or {}).get("address") or ""
        try:
            found[name] = ClusterInput.assumed(name, storage_class_name=view.cache_storage_class, gateway_address=address, **declared)
        except InvalidFacts as error:
            for problem in error.problems:
                findings.problem(f"InferenceCluster {name}", problem)
    return found


def _caches(documents: Documents, facts: Mapping[str, ClusterInput], settings: RenderSettings, findings: Findings) -> Iterator[_Job]:
    for (namespace, name), manifest in documents.caches.items():
        title = f"ModelCache {namespace}/{name}"
        clusters = [cluster for cluster in sorted(facts) if _matches(manifest, documents.clusters.get(cluster))]
        if not clusters:
            findings.problem(title, "no cluster to render it for; add an InferenceCluster that it selects, or --cluster-facts")
        for cluster in clusters:
            staged = any(key in facts[cluster].cache_claims for key in (f"{namespace}/{name}", name))
            wanted = CacheInput(namespace, name, NO_UID, FIRST_GENERATION, cluster, manifest["spec"], ready=staged)
            yield _Job(title, cluster, partial(render_cache, wanted, facts[cluster], settings))


def _matches(cache: Mapping[str, Any], cluster: Mapping[str, Any] | None) -> bool:
    """Whether a cache is staged on a cluster; one that is known by facts alone has no labels to match."""
    if cluster is None:
        return True
    own = cluster["metadata"].get("labels") or {}
    wanted = ((cache["spec"].get("clusterSelector") or {}).get("matchLabels")) or {}
    return all(own.get(key) == value for key, value in wanted.items())


def _replicas(
    documents: Documents, facts: Mapping[str, ClusterInput], settings: RenderSettings, findings: Findings, policy: SchedulerOptions | None
) -> Iterator[_Job]:
    for wanted in _replica_inputs(documents, findings, policy):
        title = f"ModelReplica {wanted.namespace}/{wanted.name}"
        if wanted.cluster not in facts:
            findings.problem(
                title,
                f"spec.clusterName: nothing is known about cluster {wanted.cluster}; add its InferenceCluster, "
                f"or `clusters: {{{wanted.cluster}: {{}}}}` with --cluster-facts",
            )
            continue
        yield _Job(title, wanted.cluster, partial(render_replica, wanted, facts[wanted.cluster], settings))


def _existing_replica(manifest: Mapping[str, Any]) -> ReplicaInput:
    metadata = manifest["metadata"]
    own = metadata.get("labels") or {}
    index = str(own.get(labels.REPLICA_INDEX) or "")
    return ReplicaInput(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=NO_UID,
        generation=FIRST_GENERATION,
        deployment=own.get(labels.DEPLOYMENT) or "",
        cluster=manifest["spec"]["clusterName"],
        index=int(index) if index.isascii() and index.isdigit() else 0,
        spec=manifest["spec"],
    )


def _replica_inputs(documents: Documents, findings: Findings, policy: SchedulerOptions | None) -> Iterator[ReplicaInput]:
    """Give the replicas that there would be: existing ones as written, those to create or to update from their deployment."""
    decisions = _decisions(documents, findings, policy)
    planned = {(decision.namespace, decision.deployment) for decision in decisions}
    kept = {
        (decision.namespace, each.replica_name) for decision in decisions for each in decision.placements if each.action == reasons.KEEP
    }
    evicted = {(each.namespace, each.replica_name) for decision in decisions for each in (*decision.evictions, *decision.victims)}
    for existing in map(_existing_replica, documents.replicas):
        name = (existing.namespace, existing.name)
        if name not in evicted and (name in kept or (existing.namespace, existing.deployment) not in planned):
            yield existing
    for manifest, decision in zip(documents.placed, decisions, strict=False):
        for wanted in _changed_replicas(manifest, decision):
            yield replace(wanted, cache_gib=_cache_gib(wanted, documents))


def _cache_gib(wanted: ReplicaInput, documents: Documents) -> int:
    cache = documents.caches.get((wanted.namespace, (wanted.spec.get("modelCacheRef") or {}).get("name", "")))
    return ModelCacheSpec.model_validate(cache["spec"]).size_gib if cache else 0


def _decisions(documents: Documents, findings: Findings, policy: SchedulerOptions | None) -> list[Decision]:
    """Decide the deployments, in document order; none where a kind is missing that placement needs."""
    if not documents.placed:
        return []
    if not (documents.clusters and documents.classes):
        missing = " and ".join(
            kind for kind, found in (("InferenceCluster", documents.clusters), ("InferenceClass", documents.classes)) if not found
        )
        names = ", ".join(manifest["metadata"]["name"] for manifest in documents.placed)
        findings.problem(f"ModelDeployment {names}", f"cannot be placed; add each {missing} with -f, or render a ModelReplica instead")
        return []
    decisions = [explained.decision for explained in decide_documents(documents, policy, now_ms())]
    for decision in decisions:
        if decision.shortfall:
            # A part that is placed can be rendered; where nothing is, the output would be empty.
            note = findings.warn if decision.placements else findings.problem
            note(f"ModelDeployment {decision.namespace}/{decision.deployment}", decision.message)
    return decisions


def _changed_replicas(manifest: Mapping[str, Any], decision: Decision) -> Iterator[ReplicaInput]:
    template = manifest["spec"]["template"]["spec"]
    for placement in decision.placements:
        if placement.action != reasons.KEEP:
            yield ReplicaInput(
                namespace=decision.namespace,
                name=placement.replica_name,
                uid=NO_UID,
                generation=FIRST_GENERATION,
                deployment=decision.deployment,
                cluster=placement.cluster,
                index=placement.index,
                spec=replica_spec(template, placement.cluster, to_wire(placement.engines)),
            )
