"""One of our objects, reduced to what its owner should know of it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import Kind, ObjectId
from activities.cluster_objects.ownership import Owner, owner_of
from activities.observe.conditions import condition, pick
from activities.observe.digest import content_digest
from api_types import labels

_ROUTING = "routing"
_DEADLINE_PASSED = "ProgressDeadlineExceeded"


class WorkloadSeen(NamedTuple):
    """A Deployment or LeaderWorkerSet as its controller counts it, in copies.

    `hashes` are those of its own templates; empty where the controller says by itself that it has seen the newest spec (`current`).
    `overdue`: its progress deadline has passed. `group_size`: pods of one copy, 0 where a copy is a single pod.
    """

    current: bool
    desired: int
    updated: int
    ready: int
    available: int
    total: int
    hashes: frozenset[str]
    message: str
    overdue: bool = False
    group_size: int = 0


class JudgedSeen(NamedTuple):
    """A route or pool as our gateway judged it. `judged`: any verdict stands there; `created`: when the object was made."""

    accepted: bool
    message: str
    judged: bool
    created: datetime


class ObjectSeen(NamedTuple):
    """What is kept of one object of ours. `backend`: a Service that requests go through."""

    target: ObjectId
    owner: Owner
    digest: str
    workload: WorkloadSeen | None = None
    judged: JudgedSeen | None = None
    backend: bool = False


def read_object(item: Mapping[str, Any]) -> ObjectSeen | None:
    """Reduce an object; None if it is nobody's that we know."""
    owner = owner_of(item)
    if not owner.uid:
        return None
    target = ObjectId.of(item)
    seen = ObjectSeen(target, owner, content_digest(item))
    if target.kind == kinds.DEPLOYMENT:
        return seen._replace(workload=_deployment(item))
    if target.kind == kinds.LEADER_WORKER_SET:
        return seen._replace(workload=_leader_worker_set(item))
    if target.kind in {kinds.HTTP_ROUTE, kinds.INFERENCE_POOL}:
        return seen._replace(judged=_judged(item, target.kind))
    if target.kind == kinds.SERVICE:
        return seen._replace(backend=(item["metadata"].get("labels") or {}).get(labels.COMPONENT) == _ROUTING)
    return seen


def _deployment(item: Mapping[str, Any]) -> WorkloadSeen:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    failing = pick(status.get("conditions") or [], "ReplicaFailure")
    return WorkloadSeen(
        current=status.get("observedGeneration", 0) >= item["metadata"].get("generation", 0),
        desired=spec.get("replicas", 1),
        updated=status.get("updatedReplicas", 0),
        ready=status.get("readyReplicas", 0),
        available=status.get("availableReplicas", 0),
        total=status.get("replicas", 0),
        hashes=frozenset(),
        message=_replica_failure(status) if failing.holds else "",
        overdue=any(
            entry.get("reason") == _DEADLINE_PASSED for entry in status.get("conditions") or [] if entry.get("type") == "Progressing"
        ),
    )


def _replica_failure(status: Mapping[str, Any]) -> str:
    found = next(entry for entry in status["conditions"] if entry.get("type") == "ReplicaFailure")
    return f"pods cannot be created: {found.get('message') or found.get('reason') or ''}"


def _leader_worker_set(item: Mapping[str, Any]) -> WorkloadSeen:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    template = spec.get("leaderWorkerTemplate") or {}
    members = (template.get("leaderTemplate"), template.get("workerTemplate"))
    notes = ((member.get("metadata") or {}).get("annotations") or {} for member in members if member)
    ready = status.get("readyReplicas", 0)
    return WorkloadSeen(
        # Its status says nothing of a generation; the hashes on the pods tell whether it has acted on the newest spec.
        current=True,
        desired=spec.get("replicas", 1),
        updated=status.get("updatedReplicas", 0),
        ready=ready,
        available=ready if condition(item, "Available").holds else 0,
        total=status.get("replicas", 0),
        hashes=frozenset(found[labels.TEMPLATE_HASH] for found in notes if labels.TEMPLATE_HASH in found),
        message="",
        group_size=template.get("size", 1),
    )


def _judged(item: Mapping[str, Any], kind: Kind) -> JudgedSeen:
    created = datetime.fromisoformat(item["metadata"]["creationTimestamp"])
    entries = [entry for entry in (item.get("status") or {}).get("parents") or [] if _is_ours(entry.get("parentRef") or {})]
    if not entries:
        return JudgedSeen(accepted=False, message="no gateway has judged it yet", judged=False, created=created)
    generation = item["metadata"].get("generation")
    reasons: list[str] = []
    for entry in entries:
        conditions = entry.get("conditions") or []
        accepted = pick(conditions, "Accepted", generation)
        resolved = pick(conditions, "ResolvedRefs", generation)
        # A pool whose gateway says nothing of its references is fine; a route must be told to be whole.
        silent = kind == kinds.INFERENCE_POOL and not any(found.get("type") == "ResolvedRefs" for found in conditions)
        if accepted.holds and (resolved.holds or silent):
            return JudgedSeen(accepted=True, message="", judged=True, created=created)
        reasons.append(accepted.text or resolved.text)
    return JudgedSeen(accepted=False, message=reasons[0], judged=True, created=created)


def _is_ours(parent: Mapping[str, Any]) -> bool:
    return parent.get("name") == labels.GATEWAY_NAME and parent.get("namespace", labels.SYSTEM_NAMESPACE) == labels.SYSTEM_NAMESPACE
