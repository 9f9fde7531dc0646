"""When a ModelReplica applies, and why: a pure decision over its state and the time."""

from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from api_types.messages.cluster_work import Applied
from workflows.model_replica.decisions.observation import drift
from workflows.model_replica.state import ModelReplicaState

# An observation may be older than the last apply: drift counts once it persists for so long.
DRIFT_DELAY = timedelta(seconds=2)

_ALWAYS = datetime.min.replace(tzinfo=UTC)

ApplyReason = Literal["spec", "copies", "drift"]


class ApplyDecision(NamedTuple):
    """Whether to apply now, and why; otherwise when to decide again.

    `drift_since` is when the present drift was first seen, empty if there is none; it goes back into the state.
    """

    reason: ApplyReason | None
    drift_since: str
    check_at: datetime | None = None


def decide_apply(state: ModelReplicaState, now: datetime) -> ApplyDecision:
    """Compare what was applied, and what is observed, with what the spec asks for."""
    if state.retry_at and (retry_at := datetime.fromisoformat(state.retry_at)) > now:
        return ApplyDecision(None, state.drift_since, retry_at)
    applied = state.applied
    if applied is None or state.applied_generation != state.generation or state.applied_inputs != state.inputs():
        return ApplyDecision("spec", state.drift_since)
    copies_due = _copies_due(applied, state.copies_due)
    if copies_due and copies_due <= now:
        return ApplyDecision("copies", state.drift_since)
    if state.observed is None or not drift(applied, state.observed):
        return ApplyDecision(None, "", copies_due)
    since = state.drift_since or now.isoformat()
    drift_due = datetime.fromisoformat(since) + DRIFT_DELAY
    if drift_due > now:
        return ApplyDecision(None, since, min(copies_due or drift_due, drift_due))
    return ApplyDecision("drift", since, copies_due)


def _copies_due(applied: Applied, due: str) -> datetime | None:
    """Give when copies of Secrets are compared with their sources; None if there are none. Copies have no digest."""
    if all(item.digest for item in applied.inventory):
        return None
    return datetime.fromisoformat(due) if due else _ALWAYS
