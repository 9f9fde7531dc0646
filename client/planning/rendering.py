"""The Kubernetes objects that would be applied to clusters, from manifests and cluster facts alone.

A deployment is placed as `plan --offline` places it, and each of its new replicas is rendered by the code that the worker runs. Without any
fleet a cluster is assumed for it, and for caches. Nothing has an identity yet: every uid is zeros and every generation 1, so that equal
input gives equal output.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from activities.render.cache.volumes import StorageClassMissing, render_cache
from activities.render.inputs.facts import CacheInput, ClusterInput, InvalidFacts, ReplicaInput
from activities.render.inputs.facts_file import GivenFacts
from activities.render.inputs.findings import Findings, NotRenderable
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.rendered import Rendered
from activities.render.replica import render_replica
from api_types import labels
from api_types.clock import now_ms
from api_types.resources.parts.pod_policy import policies_by_pool
from api_types.resources.replica_spec import replica_spec
from client.errors import Refused
from client.planning import assumed_cluster, given_caches
from client.refs.tree import Tree
from scheduler import Decision, Documents, SchedulerOptions, decide_documents, offline_cluster, reasons, sort_documents, to_wire

NO_UID = str(uuid.UUID(int=0))
FIRST_GENERATION = 1
_RENDERED = ("ModelDeployment", "ModelReplica", "ModelCache")
# Annotations of a cluster that are facts about it, and the fields they set.
_ANNOTATED = {labels.ROUTING: "routing", labels.SCHEDULER_TYPE: "scheduler_type", labels.MESH_PROVIDER: "mesh_provider"}


@dataclass(frozen=True)
class Output:
    """The objects of one replica or cache on one cluster, in the order in which they are applied; Secrets come without data.

    `notes` say what was assumed.
    """

    title: str
    cluster: str
    objects: tuple[Tree, ...]
    notes: tuple[str, ...] = ()


def render_all(
    trees: Sequence[Tree], given: Mapping[str, GivenFacts], settings: RenderSettings, policy: SchedulerOptions | None = None
) -> tuple[list[Output], tuple[str, ...]]:
    """Render every cache, replica and deployment among the objects, caches first, and give the warnings.

    `given` are facts by cluster, above those that the clusters declare. Deployments are placed by the fleet policy that is given. Raises
    `Refused` with everything that cannot be rendered.
    """
    if not any(tree["kind"] in _RENDERED for tree in trees):
        raise Refused(f"nothing to render among the objects; these can be: {', '.join(_RENDERED)}", next_step="add one of them with -f")
    documents = sort_documents(trees)
    findings = Findings()
    assumed = assumed_cluster.name_for(documents, tuple(given))
    facts = _facts(documents, given, assumed, findings)
    if assumed:
        inputs = assumed_cluster.replicas(documents, assumed, NO_UID, FIRST_GENERATION)
    else:
        inputs = _replica_inputs(documents, findings, policy)
    mounting = [given_caches.with_mounts(wanted, documents, facts.get(wanted.cluster)) for wanted in inputs]
    notes = _notes(documents, assumed, dict.fromkeys(name for _, names in mounting for name in names))
    for note in notes:
        findings.warn("", note)
    replicas = _replicas([wanted for wanted, _ in mounting], facts, settings, findings)
    jobs = [*_caches(documents, facts, settings, findings), *replicas]
    unmatched = list[tuple[str, str]]()
    outputs = [replace(output, notes=notes) for job in jobs if (output := _run(job, findings, unmatched))]
    for title, problem in unmatched:
        # Where another cluster can stage it, this one is only left out.
        found = any(output.title == title for output in outputs)
        (findings.warn if found else findings.problem)(title, f"not matched: {problem}")
    if findings.problems:
        raise Refused("not everything can be rendered", details=findings.problems, next_step="fix these problems and run the command again")
    return outputs, tuple(findings.warnings)


def _notes(documents: Documents, assumed: str, staged: Iterable[str]) -> tuple[str, ...]:
    """Say what is assumed: a cluster, and caches that are staged."""
    names = sorted(staged)
    of_cluster = [assumed_cluster.note(assumed, documents)] if assumed else []
    return (*of_cluster, *([given_caches.note(names)] if names else []))


@dataclass(frozen=True)
class _Job:
    title: str
    cluster: str
    render: Callable[[], Rendered]


def _run(job: _Job, findings: Findings, unmatched: list[tuple[str, str]]) -> Output | None:
    """Render one of them; None with a problem, or where a cluster cannot stage a cache: then it is none that the cache matches."""
    where = f"{job.title} on {job.cluster}"
    try:
        rendered = job.render()
    except StorageClassMissing as error:
        unmatched += [(job.title, problem) for problem in error.problems]
        return None
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


def _facts(documents: Documents, given: Mapping[str, GivenFacts], assumed: str, findings: Findings) -> dict[str, ClusterInput]:
    """Give the facts about every cluster: those that are given above those that it declares, or that are assumed."""
    declared = {name: _declared_facts(manifest, documents.classes) for name, manifest in documents.clusters.items()}
    if assumed:
        known = given.get(assumed, GivenFacts())
        given = {assumed: replace(known, cache_claims={**assumed_cluster.claims(documents), **known.cache_claims})}
        declared = {assumed: assumed_cluster.FACTS}
    found: dict[str, ClusterInput] = {}
    for name in dict.fromkeys((*declared, *given)):
        try:
            found[name] = given.get(name, GivenFacts()).over(name, declared.get(name))
        except InvalidFacts as error:
            for problem in error.problems:
                findings.problem(f"InferenceCluster {name}", problem)
    return found


def _declared_facts(manifest: Mapping[str, Any], classes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Give the facts that an InferenceCluster declares, and that its classes declare for it."""
    annotations = manifest["metadata"].get("annotations") or {}
    view = offline_cluster(manifest, classes)
    return {
        "storage_class_name": view.cache_storage_class,
        "gateway_address": ((manifest.get("status") or {}).get("gateway") or {}).get("address") or "",
        "drivers": {entry.device_class: entry.driver for pool in view.pools for entry in pool.device_set.entries if entry.device_class},
        "pod_policies": policies_by_pool(manifest["spec"].get("nodePools") or (), {name: known["spec"] for name, known in classes.items()}),
        **{field: annotations[key] for key, field in _ANNOTATED.items() if key in annotations},
    }


def _caches(documents: Documents, facts: Mapping[str, ClusterInput], settings: RenderSettings, findings: Findings) -> Iterator[_Job]:
    for (namespace, name), manifest in documents.caches.items():
        title = f"ModelCache {namespace}/{name}"
        clusters = [cluster for cluster in sorted(facts) if given_caches.matches(manifest, documents.clusters.get(cluster))]
        if not clusters:
            findings.problem(title, "no cluster to render it for; add an InferenceCluster that it selects, or --cluster-facts")
        for cluster in clusters:
            staged = given_caches.is_staged(namespace, name, facts[cluster])
            wanted = CacheInput(namespace, name, NO_UID, FIRST_GENERATION, cluster, manifest["spec"], ready=staged)
            yield _Job(title, cluster, partial(render_cache, wanted, facts[cluster], settings))


def _replicas(
    inputs: Iterable[ReplicaInput], facts: Mapping[str, ClusterInput], settings: RenderSettings, findings: Findings
) -> Iterator[_Job]:
    for wanted in inputs:
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
        yield from _changed_replicas(manifest, decision)


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
