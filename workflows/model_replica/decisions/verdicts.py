"""Conclusions of a ModelReplica: conditions, serving and warnings.

All functions are pure: equal states lead to equal conclusions.
"""

from typing import NamedTuple

from api_types.messages.cluster_work import Applied
from api_types.messages.observations import ObservedReplica
from workflows.entity.conditions import FALSE, TRUE, Verdict
from workflows.model_replica.decisions.cache import cache_problem
from workflows.model_replica.decisions.cluster import access_of, unreachable_problem
from workflows.model_replica.decisions.observation import (
    drift,
    holds_floor,
    is_complete,
    model_problem,
    overdue,
    routing_problem,
)
from workflows.model_replica.state import ModelReplicaState


class Warned(NamedTuple):
    """Reason and message of a warning event."""

    reason: str
    message: str


class Assessment(NamedTuple):
    """The conclusions of one pass; `conditions` in the order of display."""

    conditions: dict[str, Verdict]
    serving: bool
    overdue: list[str]
    observed_generation: int
    ready: bool = False
    warnings: tuple[Warned, ...] = ()


def assess(state: ModelReplicaState) -> Assessment:
    """Return readiness and serving from the applied and the observed objects."""
    accepted = acceptance(state)
    applied, seen = state.applied, state.observed
    if (
        applied is None
        or seen is None
        or not (accepted.status == TRUE or state.was_ready)
    ):
        conditions = {
            "ModelAccepted": accepted,
            "ModelReady": Verdict(FALSE, "WaitingForModel"),
            "RoutingReady": Verdict(FALSE, "Configuring"),
            "Ready": Verdict(FALSE, "Creating", accepted.message),
        }
        return Assessment(
            conditions, state.serving, state.overdue, state.observed_generation
        )
    model, routing, unreachable = (
        model_problem(applied, seen),
        routing_problem(applied, seen),
        unreachable_problem(state),
    )
    ready = accepted.status == TRUE and not (model or routing or unreachable)
    # While new pods wait for a cache, the earlier ones serve, also after all of them
    # were restarted.
    may_serve = state.serving or (
        state.was_ready and bool(applied.held) and is_complete(applied, seen)
    )
    serving = ready or (
        may_serve
        and not unreachable
        and holds_floor(applied, seen, (state.spec or {})["engines"])
    )
    late, warnings = _overdue_warnings(state, applied, seen)
    # The observation of an unresponsive cluster is outdated. A failed update explains
    # why Ready is False, but not why serving ended.
    not_serving = unreachable or model or routing or accepted.message
    not_ready = unreachable or accepted.message or model or routing
    if state.serving and not serving:
        warnings = (*warnings, Warned("ServingLost", not_serving))
    unready = Verdict(
        FALSE, "Unavailable" if state.was_ready else "Creating", not_ready
    )
    conditions = {
        "ModelAccepted": accepted,
        "ModelReady": Verdict(FALSE, "ModelStarting", model)
        if model
        else Verdict(TRUE, "Serving"),
        "RoutingReady": Verdict(FALSE, "Configuring", routing)
        if routing
        else Verdict(TRUE, "RouteConfigured"),
        "Serving": _serving_verdict(state, not_serving, serving=serving),
        "Ready": Verdict(TRUE, "Available") if ready else unready,
    }
    return Assessment(
        conditions, serving, late, state.applied_generation, ready, warnings
    )


def _serving_verdict(
    state: ModelReplicaState, why_not: str, *, serving: bool
) -> Verdict:
    if serving and state.drain_until:
        times = (
            "when no route of a service has its endpoint, and not before "
            f"{state.drain_until}, so that running requests end"
        )
        return Verdict(FALSE, "Draining", f"its pods are about to be replaced: {times}")
    return (
        Verdict(TRUE, "Serving") if serving else Verdict(FALSE, "NotServing", why_not)
    )


def _overdue_warnings(
    state: ModelReplicaState, applied: Applied, seen: ObservedReplica
) -> tuple[list[str], tuple[Warned, ...]]:
    """Return the overdue engines, and one warning for each newly overdue engine.

    No condition changes, because large models may take long.
    """
    late = overdue(applied, seen)
    text = "engine {} has exceeded its progress deadline; still waiting for it"
    return late, tuple(
        Warned("ProgressDeadlineExceeded", text.format(name))
        for name in late
        if name not in state.overdue
    )


def acceptance(state: ModelReplicaState) -> Verdict:
    """Return ModelAccepted: whether the cluster has the objects of the present generation."""
    failure = state.failure
    if failure.type:
        reason = state.failure_reason
        detailed = reason == "ClusterUnreachable" and failure.type != reason
        return Verdict(
            FALSE,
            reason,
            f"{failure.type}: {failure.message}" if detailed else failure.message,
        )
    if access_of(state) is None:
        return Verdict(
            FALSE,
            "WaitingForCluster",
            f"InferenceCluster {state.start.cluster} is not connected",
        )
    if state.applied is None or state.applied_generation != state.generation:
        return Verdict(
            FALSE, "Deploying", f"generation {state.generation} is not applied yet"
        )
    if state.observed is None:
        return Verdict(
            FALSE, "Deploying", "waiting for the first observation of the cluster"
        )
    missing = drift(state.applied, state.observed)
    if missing:
        return Verdict(
            FALSE,
            "Deploying",
            f"not observed as applied yet: {', '.join(item.key for item in missing)}",
        )
    if state.applied.held:
        return Verdict(FALSE, state.applied.held, cache_problem(state))
    return Verdict(TRUE, "Accepted")
