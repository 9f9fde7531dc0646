"""The conditions and the status of a deployment, as pure functions of its state."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from api_types import labels, names
from api_types.messages.scheduling import PlacedCondition
from api_types.resources.status import Condition
from scheduler import template_digest
from workflows.entity.conditions import FALSE, TRUE, Verdict
from workflows.model_deployment.state import DeploymentState, TrackedReplica


@dataclass(frozen=True)
class ReplicaSummary:
    """The progress of the replicas.

    `scheduled` is the ReplicasScheduled condition of the scheduler; `staying` are the
    replicas that are not being deleted.
    """

    wanted: int
    staying: list[TrackedReplica]
    answered: bool
    shortfall: int
    more: bool
    scheduled: PlacedCondition | None

    @classmethod
    def of(cls, state: DeploymentState) -> Self:
        """Return the progress in this state."""
        return cls(
            wanted=state.wanted,
            staying=state.staying(),
            answered=state.answered,
            shortfall=state.shortfall,
            more=state.more,
            scheduled=next(
                (
                    condition
                    for condition in state.scheduler_conditions
                    if condition.type == "ReplicasScheduled"
                ),
                None,
            ),
        )


def conditions_of(state: DeploymentState) -> list[tuple[str, Verdict]]:
    """Return all conditions in the order in which they are written, the scheduler's first."""
    summary = ReplicaSummary.of(state)
    return [
        *(
            (
                condition.type,
                Verdict(condition.status, condition.reason, condition.message),
            )
            for condition in state.scheduler_conditions
            if condition.type != "ReplicasScheduled"
        ),
        ("ReplicasScheduled", scheduled_verdict(summary)),
        ("ReplicasReady", ready_replicas_verdict(summary)),
        ("Ready", ready_verdict(summary)),
    ]


def without_retracted(
    held: Sequence[Condition],
    before: Sequence[PlacedCondition],
    now: Sequence[PlacedCondition],
) -> list[Condition]:
    """Return the conditions without those that the new answer retracts.

    The previous answer had these conditions, and the new one lacks them.
    """
    retracted = {condition.type for condition in before} - {
        condition.type for condition in now
    }
    return [condition for condition in held if condition.type not in retracted]


def scheduled_verdict(summary: ReplicaSummary) -> Verdict:
    """Return ReplicasScheduled.

    A partial placement is False, with the scheduler's reasons.
    """
    counts = f"{len(summary.staying)} of {summary.wanted}"
    if summary.wanted == 0:
        return Verdict(TRUE, "ScaledToZero", "")
    if summary.scheduled is None or not summary.answered:
        return Verdict(
            FALSE, "Scheduling", f"{counts} replicas; waiting for the scheduler"
        )
    if summary.shortfall or summary.scheduled.reason in (
        "InvalidNodeSelector",
        "NoClusters",
    ):
        return Verdict(
            summary.scheduled.status,
            summary.scheduled.reason,
            summary.scheduled.message,
        )
    if not any(replica.started for replica in summary.staying):
        return Verdict(FALSE, "Scheduling", f"{counts} replicas")
    return Verdict(TRUE, "ReplicasCreated", f"Scheduled {counts} replicas")


def ready_replicas_verdict(summary: ReplicaSummary) -> Verdict:
    """Return ReplicasReady; its message names the first replica that is not Ready."""
    if summary.wanted == 0:
        return Verdict(FALSE, "ScaledToZero", "")
    if not summary.staying:
        return Verdict(FALSE, "NoReplicasScheduled", "")
    waiting = [replica for replica in summary.staying if not replica.ready]
    counts = f"{len(summary.staying) - len(waiting)} of {len(summary.staying)} ready"
    if not waiting:
        return Verdict(TRUE, "AllReplicasReady", counts)
    first = waiting[0]
    detail = (
        f"; {first.name} on {first.cluster}: {first.message}" if first.message else ""
    )
    return Verdict(FALSE, "ModelStarting", counts + detail)


def ready_verdict(summary: ReplicaSummary) -> Verdict:
    """Return Ready: all wanted replicas are placed, Ready, and have the newest template.

    Replicas whose update the rollout does not permit yet may have an older template.
    """
    if summary.wanted == 0:
        return Verdict(FALSE, "ScaledToZero", "")
    scheduled, ready = scheduled_verdict(summary), ready_replicas_verdict(summary)
    blocked = next(
        (verdict for verdict in (scheduled, ready) if verdict.status != TRUE), None
    )
    # Without an answer ReplicasScheduled is not True.
    current = not summary.more and all(replica.current for replica in summary.staying)
    if blocked is None and current:
        return Verdict(TRUE, "Available", "")
    why = (
        f"{blocked.reason}: {blocked.message}"
        if blocked
        else "rolling out a new generation"
    )
    return Verdict(
        FALSE,
        "Unavailable"
        if any(replica.ready for replica in summary.staying)
        else "Creating",
        why,
    )


def rollout_progress(state: DeploymentState) -> dict[str, Any]:
    """Count three groups of replicas.

    These are the replicas with the present template, those of them that are Ready, and
    all replicas. Templates are compared, not generations: after an undo, unchanged
    replicas have the present template already.
    """
    spec, staying = state.spec or {}, state.staying()
    template = template_digest(spec["template"]["spec"], state.adoption)
    current = (None, "", template)
    ordered = [
        replica for replica in staying if replica.entry.get("template") in current
    ]
    return {
        "templateGeneration": state.template_generation,
        "updated": len(ordered),
        "updatedReady": sum(replica.current for replica in ordered),
        "total": len(staying),
        "paused": bool((spec.get("rollout") or {}).get("paused")),
    }


def pending_changes(staying: Sequence[TrackedReplica]) -> list[str]:
    """Return the pod changes that wait for a rollout, and the number of replicas."""
    counts = Counter(replica.pending for replica in staying if replica.pending)
    return [
        f"{cause} changes {count} replica{'s' * (count != 1)}"
        for cause, count in sorted(counts.items())
    ]


def status_of(state: DeploymentState, name: str) -> dict[str, Any]:
    """Return the status fields: counts, the scale selector and each replica."""
    staying = state.staying()
    status: dict[str, Any] = {
        "replicas": {
            "total": len(staying),
            "ready": sum(replica.ready for replica in staying),
        },
        "selector": f"{labels.DEPLOYMENT}={names.label_value(name)}",
        "placements": [
            {
                "replica": replica.name,
                "cluster": replica.cluster,
                "index": replica.index,
                "phase": "Terminating" if replica.deletion_reason else replica.phase,
                "ready": replica.ready,
                "endpoint": replica.endpoint,
                "message": replica.message,
            }
            for replica in state.by_name()
        ],
    }
    if state.spec:
        status["rollout"] = rollout_progress(state)
        if state.adoption:
            status["rollout"]["adoption"] = state.adoption
        if pending := pending_changes(staying):
            status["rollout"]["pending"] = pending
        status["rollout"]["revisions"] = [
            revision.generation for revision in state.revisions
        ]
    if state.timings:
        timings = state.timings
        status["pace"] = {
            "generation": timings.generation,
            "placedSeconds": None
            if timings.placed_seconds is None
            else round(timings.placed_seconds, 3),
            "readySeconds": None
            if timings.ready_seconds is None
            else round(timings.ready_seconds, 3),
        }
    if state.last_scale:
        status["lastScale"] = state.last_scale.wire()
    return status
