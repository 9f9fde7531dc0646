"""The conditions of a deployment that follow from a decision."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.explain.diagnosis import MESSAGE_MAX, headline, named
from scheduler.explain.fleet_names import nearest_text
from scheduler.explain.near_names import nearest
from scheduler.model import reasons
from scheduler.model.decision import Condition, Diagnosis, RetainedNote
from scheduler.model.inputs import DeploymentView
from scheduler.model.policy import SchedulerOptions
from scheduler.placement.score import DEFAULT, PROFILES, WEIGHTED

_NOTE_CONDITIONS = {
    reasons.DRIFTED: ("PlacementDrifted", reasons.DRIFTED),
    reasons.RESIZE_BLOCKED: (reasons.RESIZE_BLOCKED, reasons.RESIZE_BLOCKED),
    reasons.REPLACEMENT_BLOCKED: (reasons.REPLACEMENT_BLOCKED, reasons.REPLACEMENT_BLOCKED),
    reasons.CAPACITY_LOST: (reasons.CAPACITY_LOST, reasons.CAPACITY_LOST),
    reasons.EVICTED: (reasons.EVICTED, reasons.EVICTED),
}
_SELECTORS = frozenset({reasons.LABEL_MISMATCH, reasons.CACHE_FOOTPRINT})


def scheduled(deployment: DeploymentView, placed: int, *, observed: bool, invalid: str, diagnosis: Diagnosis) -> Condition:
    """Give `ReplicasScheduled`: whether every replica is placed."""
    wanted = deployment.replicas
    kind = "ReplicasScheduled"
    if invalid:
        return Condition(kind, "False", "InvalidNodeSelector", f"Invalid nodeSelector CEL expression: {invalid}"[:MESSAGE_MAX])
    if wanted == 0:
        return Condition(kind, "True", "ScaledToZero", "0 replicas wanted")
    if placed < wanted:
        return _with_shortfall(deployment, placed, diagnosis)
    if not observed:
        return Condition(kind, "False", "Scheduling", f"{placed} of {wanted} replicas scheduled")
    return Condition(kind, "True", "ReplicasCreated", f"Scheduled {placed} of {wanted} replicas")


def _with_shortfall(deployment: DeploymentView, placed: int, diagnosis: Diagnosis) -> Condition:
    wanted = deployment.replicas
    if diagnosis.held:
        message = f"{placed} of {wanted} replicas scheduled. {diagnosis.held}"
        return Condition("ReplicasScheduled", "False", "Scheduling", message)
    head = f"{placed} of {wanted} replicas scheduled (checked {diagnosis.clusters} clusters). "
    reason = "NoClusters" if placed == 0 and no_candidates(diagnosis) else "InsufficientCapacity"
    return Condition("ReplicasScheduled", "False", reason, head + headline(diagnosis, MESSAGE_MAX - len(head)))


def no_candidates(diagnosis: Diagnosis) -> bool:
    """Whether no cluster passes the deployment's and its cache's selectors."""
    codes = {group.code for group in diagnosis.groups}
    return not diagnosis.clusters or (bool(codes) and codes <= _SELECTORS)


def fully_scheduled(deployment: DeploymentView, placed: int, invalid: str, diagnosis: Diagnosis) -> Condition:
    """Give `FullyScheduled`; its reason is the filter that rejects most clusters."""
    kind = "FullyScheduled"
    if placed >= deployment.replicas and not invalid:
        return Condition(kind, "True", "AllReplicasPlaced", f"{placed} of {deployment.replicas} replicas placed")
    if invalid:
        return Condition(kind, "False", "InvalidNodeSelector", "the selectors cannot be used")
    if diagnosis.held:
        return Condition(kind, "False", "FillHeld", diagnosis.held)
    totals: dict[str, int] = {}
    for group in diagnosis.groups:
        totals[group.code] = totals.get(group.code, 0) + group.count
    order = reasons.FILTER_ORDER
    blocking = min(totals, key=lambda code: (-totals[code], order.index(code)), default="NoClusters")
    return Condition(kind, "False", blocking, headline(diagnosis))


def note_conditions(notes: Iterable[RetainedNote]) -> list[Condition]:
    """Give a condition for each kind of note, naming the replicas."""
    by_reason: dict[str, list[RetainedNote]] = {}
    for note in notes:
        by_reason.setdefault(note.reason, []).append(note)
    found = []
    for reason, (kind, text) in _NOTE_CONDITIONS.items():
        if reason in by_reason:
            first = by_reason[reason][0].detail
            names = named(note.replica_name for note in by_reason[reason])
            found.append(Condition(kind, "True", text, f"{names}: {first}"[:MESSAGE_MAX] if first else names))
    return found


def priority_class_problem(deployment: DeploymentView, options: SchedulerOptions) -> str:
    """Say that the fleet's policy does not have the priority class of a deployment, and which was probably meant; "" if it has it."""
    name, known = deployment.policy.priority_class, options.priority_classes
    if not name or name in known:
        return ""
    near = nearest(name, known)
    other = f"nearest: {near}" if near else f"it has {named(sorted(known))}" if known else "it has none"
    return f"spec.scheduling.priorityClassName: the fleet's policy has no priority class {name}, so the priority is 0; {other}"


def warnings_of(deployment: DeploymentView, options: SchedulerOptions) -> tuple[str, ...]:
    """Name the priority class and the profile of a deployment if there are none of these names."""
    found = [priority_class_problem(deployment, options)]
    name = deployment.policy.profile
    if name and name not in (*PROFILES, WEIGHTED):
        near = nearest_text(nearest(name, (*PROFILES, WEIGHTED)))
        found.append(f"spec.scheduling.profile: there is no profile {name}, so the profile is {DEFAULT}{near}")
    return tuple(text for text in found if text)


def priority_class_condition(deployment: DeploymentView, options: SchedulerOptions) -> Condition | None:
    """Give `PriorityClassUnknown`, absent where the class is known or none is named."""
    problem = priority_class_problem(deployment, options)
    return Condition("PriorityClassUnknown", "True", "PriorityClassNotFound", problem[:MESSAGE_MAX]) if problem else None


def cache_condition(deployment: DeploymentView) -> Condition | None:
    """Give `ModelCacheResolved`, absent without a cache reference."""
    cache = deployment.cache
    kind = "ModelCacheResolved"
    if cache.state == "NotReferenced":
        return None
    if cache.state == "Present":
        return Condition(kind, "True", "ModelCacheResolved", "")
    if cache.state == "Absent":
        return Condition(kind, "False", "ModelCacheNotFound", f"ModelCache {cache.name} not found; holding replica placement")
    return Condition(kind, "False", "ModelCacheUnresolved", f"Waiting for ModelCache {cache.name}")
