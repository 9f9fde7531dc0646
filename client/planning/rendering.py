"""The Kubernetes objects that would be applied, from manifests and cluster facts alone.

A deployment is placed as `plan --offline` places it, and the worker's code renders its
new replicas. Without a fleet, one cluster is assumed for deployments and caches. Every
uid consists of zeros and every generation is 1, so that equal input produces equal
output.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from activities.render.cache.volumes import NoSharedStorageClass, render_cache
from activities.render.inputs.facts import (
    CacheInput,
    ClusterInput,
    InvalidFacts,
    ReplicaInput,
)
from activities.render.inputs.facts_file import GivenFacts
from activities.render.inputs.findings import Findings, NotRenderable
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.rendered import Rendered
from activities.render.replica import render_replica
from api_types import labels
from api_types.clock import now_ms
from api_types.resources.parts.pod_policy import policies_by_pool
from api_types.resources.replica_spec import replica_spec
from client.planning import assumed_cluster, given_caches
from fleet_client.errors import Refused
from fleet_client.refs.tree import Tree, at_path
from scheduler import (
    Decision,
    Documents,
    SchedulerOptions,
    decide_documents,
    offline_cluster,
    reasons,
    sort_documents,
    to_wire,
)

NO_UID = str(uuid.UUID(int=0))
FIRST_GENERATION = 1
_RENDERED = ("ModelDeployment", "ModelReplica", "ModelCache")
# Annotations of a cluster that are facts, and their fields.
_ANNOTATED = {
    labels.ROUTING: "routing",
    labels.SCHEDULER_TYPE: "scheduler_type",
    labels.MESH_PROVIDER: "mesh_provider",
}


@dataclass(frozen=True)
class Output:
    """The objects of one replica or cache on one cluster, in their order of application.

    Secrets come without data. `notes` are the assumptions.
    """

    title: str
    cluster: str
    objects: tuple[Tree, ...]
    notes: tuple[str, ...] = ()


def render_all(
    trees: Sequence[Tree],
    given: Mapping[str, GivenFacts],
    settings: RenderSettings,
    policy: SchedulerOptions | None = None,
) -> tuple[list[Output], tuple[str, ...]]:
    """Render every cache, replica and deployment, caches first.

    Also return the warnings. `given` are facts by cluster, which take precedence over
    declared ones. Deployments are placed by the given policy. Raise `Refused` with
    everything that cannot be rendered.
    """
    if not any(tree["kind"] in _RENDERED for tree in trees):
        raise Refused(
            f"nothing to render among the objects; these can be: {', '.join(_RENDERED)}",
            next_step="add one of them with -f",
        )
    documents = sort_documents(trees)
    findings = Findings()
    assumed = assumed_cluster.name_for(documents, tuple(given))
    facts = _facts(documents, given, assumed, findings)
    if assumed:
        inputs = assumed_cluster.replicas(documents, assumed, NO_UID, FIRST_GENERATION)
    else:
        inputs = _replica_inputs(documents, findings, policy)
    mounting = [
        given_caches.with_mounts(wanted, documents, facts.get(wanted.cluster))
        for wanted in inputs
    ]
    staged: set[str] = set()
    for _, names in mounting:
        staged.update(names)
    notes = _notes(documents, assumed, staged)
    for note in notes:
        findings.warn("", note)
    replicas = _replicas([wanted for wanted, _ in mounting], facts, settings, findings)
    jobs = [*_caches(documents, facts, settings, findings), *replicas]
    unmatched = list[tuple[str, str]]()
    found = [_run(job, findings, unmatched) for job in jobs]
    outputs = [replace(output, notes=notes) for output in found if output]
    for title, problem in unmatched:
        # If another cluster can stage the cache, only this cluster is left out.
        is_staged = any(output.title == title for output in outputs)
        note_finding = findings.warn if is_staged else findings.problem
        note_finding(title, f"not matched: {problem}")
    if findings.problems:
        raise Refused(
            "some objects cannot be rendered",
            details=findings.problems,
            next_step="fix these problems and run the command again",
        )
    return outputs, tuple(findings.warnings)


def _notes(
    documents: Documents, assumed: str, staged: Iterable[str]
) -> tuple[str, ...]:
    """Return notes about an assumed cluster and assumed caches."""
    notes = []
    if assumed:
        notes.append(assumed_cluster.note(assumed, documents))
    if names := sorted(staged):
        notes.append(given_caches.note(names))
    return tuple(notes)


@dataclass(frozen=True)
class _Job:
    title: str
    cluster: str
    render: Callable[[], Rendered]


def _run(
    job: _Job, findings: Findings, unmatched: list[tuple[str, str]]
) -> Output | None:
    """Render one object.

    Return None if that fails, or if the cluster cannot stage the cache.
    """
    where = f"{job.title} on {job.cluster}"
    try:
        rendered = job.render()
    except NoSharedStorageClass as error:
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
    objects = [
        *(copy.manifest for copy in rendered.copies),
        *(item.manifest for item in rendered.objects),
    ]
    return Output(job.title, job.cluster, tuple(objects))


def _facts(
    documents: Documents,
    given: Mapping[str, GivenFacts],
    assumed: str,
    findings: Findings,
) -> dict[str, ClusterInput]:
    """Return the facts about every cluster.

    Given facts take precedence over declared and assumed ones.
    """
    declared = {
        name: _declared_facts(manifest, documents.classes)
        for name, manifest in documents.clusters.items()
    }
    if assumed:
        known = given.get(assumed, GivenFacts())
        claims = {**assumed_cluster.claims(documents), **known.cache_claims}
        given = {assumed: replace(known, cache_claims=claims)}
        declared = {assumed: assumed_cluster.FACTS}
    found: dict[str, ClusterInput] = {}
    for name in dict.fromkeys((*declared, *given)):
        try:
            found[name] = given.get(name, GivenFacts()).over(name, declared.get(name))
        except InvalidFacts as error:
            for problem in error.problems:
                findings.problem(f"InferenceCluster {name}", problem)
    return found


def _declared_facts(
    manifest: Mapping[str, Any], classes: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the facts that an InferenceCluster declares, and those of its classes."""
    annotations = manifest["metadata"].get("annotations") or {}
    annotated = {
        field: annotations[key]
        for key, field in _ANNOTATED.items()
        if key in annotations
    }
    view = offline_cluster(manifest, classes)
    drivers: dict[str, str] = {}
    for pool in view.pools:
        for entry in pool.device_set.entries:
            if entry.device_class:
                drivers[entry.device_class] = entry.driver
    pools = manifest["spec"].get("nodePools") or ()
    specs = {name: known["spec"] for name, known in classes.items()}
    return {
        "storage_class_name": view.cache_storage_class,
        "gateway_address": at_path(manifest, ".status.gateway.address") or "",
        "drivers": drivers,
        "pod_policies": policies_by_pool(pools, specs),
        **annotated,
    }


def _caches(
    documents: Documents,
    facts: Mapping[str, ClusterInput],
    settings: RenderSettings,
    findings: Findings,
) -> Iterator[_Job]:
    for (namespace, name), manifest in documents.caches.items():
        title = f"ModelCache {namespace}/{name}"
        clusters = [
            cluster
            for cluster in sorted(facts)
            if given_caches.matches(manifest, documents.clusters.get(cluster))
        ]
        if not clusters:
            findings.problem(
                title,
                (
                    "no cluster to render it for; add an InferenceCluster that it "
                    "selects, or --cluster-facts"
                ),
            )
        for cluster in clusters:
            staged = given_caches.is_staged(namespace, name, facts[cluster])
            wanted = CacheInput(
                namespace,
                name,
                NO_UID,
                FIRST_GENERATION,
                cluster,
                manifest["spec"],
                ready=staged,
            )
            yield _Job(
                title, cluster, partial(render_cache, wanted, facts[cluster], settings)
            )


def _replicas(
    inputs: Iterable[ReplicaInput],
    facts: Mapping[str, ClusterInput],
    settings: RenderSettings,
    findings: Findings,
) -> Iterator[_Job]:
    for wanted in inputs:
        title = f"ModelReplica {wanted.namespace}/{wanted.name}"
        if wanted.cluster not in facts:
            findings.problem(
                title,
                f"spec.clusterName: nothing is known about cluster {wanted.cluster}; "
                f"add its InferenceCluster, or `clusters: {{{wanted.cluster}: "
                "{}}` with --cluster-facts",
            )
            continue
        yield _Job(
            title,
            wanted.cluster,
            partial(render_replica, wanted, facts[wanted.cluster], settings),
        )


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


def _replica_inputs(
    documents: Documents, findings: Findings, policy: SchedulerOptions | None
) -> Iterator[ReplicaInput]:
    """Yield all replicas after the decisions.

    Kept ones are rendered as written, new and changed ones from the template.
    """
    decisions = _decisions(documents, findings, policy)
    planned = {(decision.namespace, decision.deployment) for decision in decisions}
    kept: set[tuple[str, str]] = set()
    evicted: set[tuple[str, str]] = set()
    for decision in decisions:
        for placement in decision.placements:
            if placement.action == reasons.KEEP:
                kept.add((decision.namespace, placement.replica_name))
        for eviction in (*decision.evictions, *decision.victims):
            evicted.add((eviction.namespace, eviction.replica_name))
    for existing in map(_existing_replica, documents.replicas):
        name = (existing.namespace, existing.name)
        if name not in evicted and (
            name in kept or (existing.namespace, existing.deployment) not in planned
        ):
            yield existing
    for manifest, decision in zip(documents.placed, decisions, strict=False):
        yield from _changed_replicas(manifest, decision)


def _decisions(
    documents: Documents, findings: Findings, policy: SchedulerOptions | None
) -> list[Decision]:
    """Decide the deployments in document order.

    Return nothing without clusters or classes.
    """
    if not documents.placed:
        return []
    if not (documents.clusters and documents.classes):
        kinds = {
            "InferenceCluster": documents.clusters,
            "InferenceClass": documents.classes,
        }
        missing = " and ".join(kind for kind, found in kinds.items() if not found)
        names = ", ".join(manifest["metadata"]["name"] for manifest in documents.placed)
        findings.problem(
            f"ModelDeployment {names}",
            f"cannot be placed; add each {missing} with -f, or render a ModelReplica instead",
        )
        return []
    decisions = [
        explained.decision
        for explained in decide_documents(documents, policy, now_ms())
    ]
    for decision in decisions:
        if decision.shortfall:
            # Placed replicas can be rendered. Without any, the output would be empty.
            note = findings.warn if decision.placements else findings.problem
            note(
                f"ModelDeployment {decision.namespace}/{decision.deployment}",
                decision.message,
            )
    return decisions


def _changed_replicas(
    manifest: Mapping[str, Any], decision: Decision
) -> Iterator[ReplicaInput]:
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
                spec=replica_spec(
                    template, placement.cluster, to_wire(placement.engines)
                ),
            )
