"""The next step of a ModelReplica's teardown: a pure decision about its state and time."""

from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from activities.render.objects.teardown import DRAIN, RELEASE, SWEEP, WITHDRAW
from workflows.model_replica.decisions.cluster import access_of
from workflows.model_replica.state import ModelReplicaState

# `attempt`: delete the objects of the step. `skip`: end the step because of `force`.
# `abandon`: end all steps on the cluster. `gone`: the same, because the objects are
# gone with the cluster. `wait`: try again later. `none needed`: the step has no work.
# `done`: the step is complete.
Action = Literal[
    "report",
    "drain",
    "release",
    "none needed",
    "done",
    "attempt",
    "skip",
    "abandon",
    "gone",
    "wait",
    "wait for cluster",
]

# A forced teardown still deletes what it can. It ends when the cluster has not answered
# for this time.
FORCED_LIMIT = timedelta(seconds=5)

FORCED = "the teardown was forced"


class StepDecision(NamedTuple):
    """The decision about the current step.

    `reason` explains an abandonment, `check_at` ends a wait, and `limit` bounds the
    last attempt.
    """

    action: Action
    reason: str = ""
    check_at: datetime | None = None
    limit: timedelta | None = None


def has_objects(state: ModelReplicaState) -> bool:
    """Return whether the current step may find objects.

    A complete inventory answers this. A replica that was reset has forgotten earlier
    inventories. The final sweep always follows an apply.
    """
    step, applied = state.teardown.step, state.applied
    if not (step.on_cluster and state.may_have_objects):
        return False
    is_complete = state.inventory_complete and not state.reset
    if not is_complete or applied is None or step.number == SWEEP:
        return True
    return any(
        item.key.startswith(step.inventory_prefixes) for item in applied.inventory
    )


def decide_step(state: ModelReplicaState, now: datetime) -> StepDecision:
    """Decide about the current step."""
    number = state.teardown.step.number
    if number == WITHDRAW:
        return StepDecision("report")
    if number == DRAIN:
        return _decide_drain(state, now)
    if number == RELEASE:
        return StepDecision("release")
    if not has_objects(state):
        return StepDecision("none needed")
    return _decide_on_cluster(state, now)


def _is_gone(state: ModelReplicaState) -> bool:
    return state.cluster is not None and bool(state.cluster.gone)


def _decide_drain(state: ModelReplicaState, now: datetime) -> StepDecision:
    may_have_served = state.served or state.reset
    if not may_have_served or _is_gone(state):
        return StepDecision("none needed")
    if state.forced:
        return StepDecision("skip")
    if not state.teardown.drain_until:
        return StepDecision("drain")
    until = datetime.fromisoformat(state.teardown.drain_until)
    return StepDecision("wait", check_at=until) if until > now else StepDecision("done")


def _decide_on_cluster(state: ModelReplicaState, now: datetime) -> StepDecision:
    if _is_gone(state):
        return StepDecision(
            "gone",
            "the cluster does not exist any more, as its cloud says, and nothing of what was on it",
        )
    if state.cluster is not None and not state.cluster.present:
        return StepDecision("abandon", "the InferenceCluster was deleted")
    if access_of(state) is None:
        if state.forced:
            return StepDecision(
                "abandon", "the teardown was forced while the cluster was not connected"
            )
        return StepDecision("wait for cluster")
    if state.forced and state.teardown.attempts:
        return StepDecision("skip")
    if state.forced:
        limit = _forced_limit(state, now)
        return (
            StepDecision("attempt", limit=limit)
            if limit > timedelta()
            else StepDecision("abandon", FORCED)
        )
    if state.retry_at and (retry_at := datetime.fromisoformat(state.retry_at)) > now:
        return StepDecision("wait", check_at=retry_at)
    return StepDecision("attempt")


def _forced_limit(state: ModelReplicaState, now: datetime) -> timedelta:
    if not state.teardown.forced_at:
        return FORCED_LIMIT
    return datetime.fromisoformat(state.teardown.forced_at) + FORCED_LIMIT - now


def decide_after_failure(state: ModelReplicaState) -> StepDecision:
    """Decide about the step after a failed attempt."""
    if state.forced == "all":
        return StepDecision("abandon", FORCED)
    return StepDecision("skip" if state.forced else "wait")
