"""The conditions of a deployment that a decision sets."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.explain.diagnosis import MESSAGE_MAX, headline, named
from scheduler.explain.fleet_names import nearest_text
from scheduler.explain.near_names import nearest
from scheduler.model import reasons
from scheduler.model.decision import DecidedCondition, Diagnosis, RetainedNote
from scheduler.model.inputs import DeploymentView
from scheduler.model.policy import SchedulerOptions
from scheduler.placement.score import DEFAULT, PROFILES, WEIGHTED

_NOTE_CONDITIONS = {
    reasons.DRIFTED: ("PlacementDrifted", reasons.DRIFTED),
    reasons.RESIZE_BLOCKED: (reasons.RESIZE_BLOCKED, reasons.RESIZE_BLOCKED),
    reasons.REPLACEMENT_BLOCKED: (
        reasons.REPLACEMENT_BLOCKED,
        reasons.REPLACEMENT_BLOCKED,
    ),
    reasons.CAPACITY_LOST: (reasons.CAPACITY_LOST, reasons.CAPACITY_LOST),
    reasons.EVICTED: (reasons.EVICTED, reasons.EVICTED),
}
_SELECTORS = frozenset({reasons.LABEL_MISMATCH, reasons.CACHE_FOOTPRINT})
INVALID_SELECTORS = "a nodeSelector CEL expression is invalid"


def scheduled(
    deployment: DeploymentView,
    placed: int,
    *,
    observed: bool,
    invalid: str,
    diagnosis: Diagnosis,
) -> DecidedCondition:
    """Return the condition `ReplicasScheduled`: whether every replica is placed."""
    wanted = deployment.replicas
    kind = "ReplicasScheduled"
    if invalid:
        return DecidedCondition(
            kind,
            "False",
            "InvalidNodeSelector",
            f"Invalid nodeSelector CEL expression: {invalid}"[:MESSAGE_MAX],
        )
    if wanted == 0:
        return DecidedCondition(kind, "True", "ScaledToZero", "0 replicas wanted")
    if placed < wanted:
        return _with_shortfall(deployment, placed, diagnosis)
    if not observed:
        return DecidedCondition(
            kind, "False", "Scheduling", f"{placed} of {wanted} replicas scheduled"
        )
    return DecidedCondition(
        kind, "True", "ReplicasCreated", f"Scheduled {placed} of {wanted} replicas"
    )


def _with_shortfall(
    deployment: DeploymentView, placed: int, diagnosis: Diagnosis
) -> DecidedCondition:
    wanted = deployment.replicas
    if diagnosis.held:
        message = f"{placed} of {wanted} replicas scheduled. {diagnosis.held}"
        return DecidedCondition("ReplicasScheduled", "False", "Scheduling", message)
    head = f"{placed} of {wanted} replicas scheduled (checked {diagnosis.clusters} clusters). "
    reason = (
        "NoClusters"
        if placed == 0 and no_candidates(diagnosis)
        else "InsufficientCapacity"
    )
    return DecidedCondition(
        "ReplicasScheduled",
        "False",
        reason,
        head + headline(diagnosis, MESSAGE_MAX - len(head)),
    )


def no_candidates(diagnosis: Diagnosis) -> bool:
    """Return whether no cluster passes the selectors of the deployment and its cache."""
    codes = {group.code for group in diagnosis.groups}
    return not diagnosis.clusters or (bool(codes) and codes <= _SELECTORS)


def fully_scheduled(
    deployment: DeploymentView, placed: int, invalid: str, diagnosis: Diagnosis
) -> DecidedCondition:
    """Return the condition `FullyScheduled`.

    Its reason is the filter that rejects the most clusters.
    """
    kind = "FullyScheduled"
    if placed >= deployment.replicas and not invalid:
        return DecidedCondition(
            kind,
            "True",
            "AllReplicasPlaced",
            f"{placed} of {deployment.replicas} replicas placed",
        )
    if invalid:
        return DecidedCondition(kind, "False", "InvalidNodeSelector", INVALID_SELECTORS)
    if diagnosis.held:
        return DecidedCondition(kind, "False", "FillHeld", diagnosis.held)
    totals: dict[str, int] = {}
    for group in diagnosis.groups:
        totals[group.code] = totals.get(group.code, 0) + group.count
    order = reasons.FILTER_ORDER
    blocking = min(
        totals,
        key=lambda code: (-totals[code], order.index(code)),
        default="NoClusters",
    )
    return DecidedCondition(kind, "False", blocking, headline(diagnosis))


def note_conditions(notes: Iterable[RetainedNote]) -> list[DecidedCondition]:
    """Return a condition for each kind of note, with the names of the replicas."""
    by_reason: dict[str, list[RetainedNote]] = {}
    for note in notes:
        by_reason.setdefault(note.reason, []).append(note)
    found = []
    for reason, (kind, text) in _NOTE_CONDITIONS.items():
        if reason in by_reason:
            first = by_reason[reason][0].detail
            message = named(note.replica_name for note in by_reason[reason])
            if first:
                message = f"{message}: {first}"[:MESSAGE_MAX]
            found.append(DecidedCondition(kind, "True", text, message))
    return found


def priority_class_problem(
    deployment: DeploymentView, options: SchedulerOptions
) -> str:
    """Return a text if the fleet's policy lacks the deployment's priority class.

    The text suggests the nearest known class.
    """
    name, known = deployment.policy.priority_class, options.priority_classes
    if not name or name in known:
        return ""
    near = nearest(name, known)
    if near:
        hint = f"nearest: {near}"
    elif known:
        hint = f"it has {named(sorted(known))}"
    else:
        hint = "it has none"
    return (
        "spec.scheduling.priorityClassName: the fleet's policy has no priority class "
        f"{name}, so the priority is 0; {hint}"
    )


def warnings_of(
    deployment: DeploymentView, options: SchedulerOptions
) -> tuple[str, ...]:
    """Return warnings about an unknown priority class and an unknown scoring profile."""
    found = [priority_class_problem(deployment, options)]
    name = deployment.policy.profile
    if name and name not in (*PROFILES, WEIGHTED):
        near = nearest_text(nearest(name, (*PROFILES, WEIGHTED)))
        found.append(
            f"spec.scheduling.profile: there is no profile {name}, "
            f"so the profile is {DEFAULT}{near}"
        )
    return tuple(text for text in found if text)


def priority_class_condition(
    deployment: DeploymentView, options: SchedulerOptions
) -> DecidedCondition | None:
    """Return the condition `PriorityClassUnknown`, or None if the class is known."""
    problem = priority_class_problem(deployment, options)
    if not problem:
        return None
    return DecidedCondition(
        "PriorityClassUnknown", "True", "PriorityClassNotFound", problem[:MESSAGE_MAX]
    )


def cache_condition(deployment: DeploymentView) -> DecidedCondition | None:
    """Return the condition `ModelCacheResolved`, or None without a cache reference."""
    cache = deployment.cache
    kind = "ModelCacheResolved"
    if cache.state == "NotReferenced":
        return None
    if cache.state == "Present":
        return DecidedCondition(kind, "True", "ModelCacheResolved", "")
    if cache.state == "Absent":
        return DecidedCondition(
            kind,
            "False",
            "ModelCacheNotFound",
            f"ModelCache {cache.name} not found; holding replica placement",
        )
    return DecidedCondition(
        kind, "False", "ModelCacheUnresolved", f"Waiting for ModelCache {cache.name}"
    )
