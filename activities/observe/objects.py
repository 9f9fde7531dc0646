"""Reduce one object that Modelplane applied to the record that its owner needs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import GroupVersionKind, ObjectId
from activities.cluster_objects.ownership import ObjectOwner, owner_of
from activities.observe.conditions import condition, find_condition
from activities.observe.digest import content_digest
from api_types import labels

_ROUTING = "routing"
_DEADLINE_PASSED = "ProgressDeadlineExceeded"


class WorkloadSeen(NamedTuple):
    """A Deployment or LeaderWorkerSet as its controller counts it, in copies.

    `hashes` are the hashes of its own templates. They are empty if the controller
    reports the observed generation (`current`). `overdue` is True after its progress
    deadline. `group_size` is the number of pods of one copy, or 0 if a copy is a single
    pod.
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


class ParentStatusSeen(NamedTuple):
    """The status that Modelplane's gateway wrote for a route or pool.

    `reported` is False if it wrote none. `created` is the creation time of the object.
    """

    accepted: bool
    message: str
    reported: bool
    created: datetime


class ObjectSeen(NamedTuple):
    """The stored record of one of Modelplane's objects.

    `backend` marks a Service that receives requests.
    """

    target: ObjectId
    owner: ObjectOwner
    digest: str
    workload: WorkloadSeen | None = None
    parent_status: ParentStatusSeen | None = None
    backend: bool = False


def read_object(item: Mapping[str, Any]) -> ObjectSeen | None:
    """Reduce an object. Returns None if Modelplane does not own it."""
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
        return seen._replace(parent_status=_parent_status(item, target.kind))
    if target.kind == kinds.SERVICE:
        return seen._replace(
            backend=(item["metadata"].get("labels") or {}).get(labels.COMPONENT)
            == _ROUTING
        )
    return seen


def _deployment(item: Mapping[str, Any]) -> WorkloadSeen:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    failing = find_condition(status.get("conditions") or [], "ReplicaFailure")
    return WorkloadSeen(
        current=status.get("observedGeneration", 0)
        >= item["metadata"].get("generation", 0),
        desired=spec.get("replicas", 1),
        updated=status.get("updatedReplicas", 0),
        ready=status.get("readyReplicas", 0),
        available=status.get("availableReplicas", 0),
        total=status.get("replicas", 0),
        hashes=frozenset(),
        message=_replica_failure(status) if failing.is_true else "",
        overdue=any(
            entry.get("reason") == _DEADLINE_PASSED
            for entry in status.get("conditions") or []
            if entry.get("type") == "Progressing"
        ),
    )


def _replica_failure(status: Mapping[str, Any]) -> str:
    found = next(
        entry for entry in status["conditions"] if entry.get("type") == "ReplicaFailure"
    )
    return (
        f"pods cannot be created: {found.get('message') or found.get('reason') or ''}"
    )


def _leader_worker_set(item: Mapping[str, Any]) -> WorkloadSeen:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    template = spec.get("leaderWorkerTemplate") or {}
    members = (template.get("leaderTemplate"), template.get("workerTemplate"))
    annotations = (
        (member.get("metadata") or {}).get("annotations") or {}
        for member in members
        if member
    )
    ready = status.get("readyReplicas", 0)
    return WorkloadSeen(
        # Its status has no observed generation. The hashes on the pods show whether the
        # controller has acted on the current spec.
        current=True,
        desired=spec.get("replicas", 1),
        updated=status.get("updatedReplicas", 0),
        ready=ready,
        available=ready if condition(item, "Available").is_true else 0,
        total=status.get("replicas", 0),
        hashes=frozenset(
            found[labels.TEMPLATE_HASH]
            for found in annotations
            if labels.TEMPLATE_HASH in found
        ),
        message="",
        group_size=template.get("size", 1),
    )


def _parent_status(item: Mapping[str, Any], kind: GroupVersionKind) -> ParentStatusSeen:
    created = datetime.fromisoformat(item["metadata"]["creationTimestamp"])
    entries = [
        entry
        for entry in (item.get("status") or {}).get("parents") or []
        if _is_ours(entry.get("parentRef") or {})
    ]
    if not entries:
        return ParentStatusSeen(
            accepted=False,
            message="no gateway has reported a status for it yet",
            reported=False,
            created=created,
        )
    generation = item["metadata"].get("generation")
    reasons: list[str] = []
    for entry in entries:
        conditions = entry.get("conditions") or []
        accepted = find_condition(conditions, "Accepted", generation)
        resolved = find_condition(conditions, "ResolvedRefs", generation)
        # A pool may lack a ResolvedRefs condition. A route needs one that is True.
        silent = kind == kinds.INFERENCE_POOL and not any(
            found.get("type") == "ResolvedRefs" for found in conditions
        )
        if accepted.is_true and (resolved.is_true or silent):
            return ParentStatusSeen(
                accepted=True, message="", reported=True, created=created
            )
        reasons.append(accepted.text or resolved.text)
    return ParentStatusSeen(
        accepted=False, message=reasons[0], reported=True, created=created
    )


def _is_ours(parent: Mapping[str, Any]) -> bool:
    return (
        parent.get("name") == labels.GATEWAY_NAME
        and parent.get("namespace", labels.SYSTEM_NAMESPACE) == labels.SYSTEM_NAMESPACE
    )
