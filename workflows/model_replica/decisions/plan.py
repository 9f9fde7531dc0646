"""When and why a ModelReplica applies: a pure decision about its state and the time."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from activities.render.objects.inventory_keys import ENGINE_PREFIX
from activities.render.objects.queues import KUEUE
from api_types.messages.cluster_work import Applied
from api_types.resources.replica_spec import engine_sizes
from workflows.entity import backoff
from workflows.model_replica.decisions.observation import drift
from workflows.model_replica.state import ModelReplicaState

# An observation may be older than the last apply, so drift counts only after this time.
DRIFT_DELAY = backoff.repair(0)

ApplyReason = Literal["spec", "copies", "renderer", "drift"]


class ApplyDecision(NamedTuple):
    """Whether to apply now, and why; or when to decide again.

    `drift_since` is the time of the first observation of the present drift, or empty.
    The state stores it.
    """

    reason: ApplyReason | None
    drift_since: str
    check_at: datetime | None = None


def decide_apply(state: ModelReplicaState, now: datetime) -> ApplyDecision:
    """Compare the applied and the observed objects with the spec."""
    if state.retry_at and (retry_at := datetime.fromisoformat(state.retry_at)) > now:
        return ApplyDecision(None, state.drift_since, retry_at)
    applied = state.applied
    if (
        applied is None
        or state.applied_generation != state.generation
        or state.applied_inputs != state.inputs()
    ):
        return ApplyDecision("spec", state.drift_since)
    if not (state.cluster and state.cluster.connected):
        # A failed attempt would show a replica as not Ready that serves. The report of
        # the cluster that answers again causes the next decision.
        return ApplyDecision(None, state.drift_since)
    if _copies_are_due(state, applied):
        return ApplyDecision("copies", state.drift_since)
    render_at = datetime.fromisoformat(state.render_at) if state.render_at else None
    if render_at and render_at <= now:
        return ApplyDecision("renderer", state.drift_since)
    if state.observed is None or not drift(applied, state.observed):
        return ApplyDecision(None, "", render_at)
    since = state.drift_since or now.isoformat()
    drift_due = _drift_due(state, datetime.fromisoformat(since), now)
    if drift_due > now:
        return ApplyDecision(None, since, drift_due)
    return ApplyDecision("drift", since)


def ends_all_pods(state: ModelReplicaState, recreated: Collection[str] = ()) -> bool:
    """Return whether an apply ends all pods of an engine while requests may arrive.

    `recreated` are the engines that the apply recreates (`recreated_engines`). An apply
    on a disconnected cluster hardly ends pods, and is repeated.
    """
    if not (
        state.serving
        and state.applied
        and state.applied_sources
        and state.cluster
        and state.cluster.connected
    ):
        return False
    before, sources = state.applied_sources, state.pod_sources()
    if not before.keys() <= sources.keys():
        return True
    adopts = state.adoption > (
        state.applied_inputs.adoption if state.applied_inputs else 0
    )
    pending = state.applied.pending if adopts else ()
    replaced = [
        engine
        for engine in (state.spec or {})["engines"]
        if sources[engine["name"]]
        != before.get(engine["name"], sources[engine["name"]])
        or f"{ENGINE_PREFIX}{engine['name']}" in pending
    ]
    return any(
        int(engine.get("copies", 1)) == 1
        or engine["name"] in recreated
        or _is_recreated(state, engine)
        for engine in replaced
    )


def recreated_engines(state: ModelReplicaState) -> list[str]:
    """Return the engines with more copies and fewer devices per copy, which must be recreated.

    Kubernetes starts added copies before it ends old ones. The scheduler has reserved
    devices for the new copies, and old and added copies together may need more: the
    added pods would wait for devices, and the old pods for the added ones.
    """
    sizes = engine_sizes(state.spec or {})
    return [
        name
        for name, before in state.applied_sizes.items()
        if name in sizes
        and sizes[name].copies > before.copies
        and sizes[name].devices < before.devices
    ]


def _is_recreated(state: ModelReplicaState, engine: Mapping[str, Any]) -> bool:
    """Return whether the cluster permits no in-place change of an engine's workload."""
    facts = state.cluster.facts if state.cluster else None
    return bool(
        facts and facts.scheduler_type == KUEUE and len(engine.get("members", ())) > 1
    )


def _copies_are_due(state: ModelReplicaState, applied: Applied) -> bool:
    """Return whether to compare copies of Secrets, which have no digest, with their sources."""
    return bool(state.copies_due) and not all(item.digest for item in applied.inventory)


def recent_repairs(state: ModelReplicaState, now: datetime) -> int:
    """Return the number of consecutive repairs of drift."""
    return backoff.recent_repairs(state.drift_repairs, state.drift_repaired_at, now)


def _drift_due(state: ModelReplicaState, since: datetime, now: datetime) -> datetime:
    repairs = recent_repairs(state, now)
    if not repairs:
        return since + DRIFT_DELAY
    return max(
        since + DRIFT_DELAY,
        datetime.fromisoformat(state.drift_repaired_at) + backoff.repair(repairs),
    )
