"""What a deployment's state means for its conditions and its status: pure readings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from api_types import labels, names
from api_types.messages.scheduling import PlacedCondition
from api_types.resources.status import Condition
from workflows.entity.conditions import FALSE, TRUE
from workflows.model_deployment.state import DeploymentState, TrackedReplica


class Verdict(NamedTuple):
    """Status, reason and message of a condition."""

    status: str
    reason: str
    message: str = ""


@dataclass(frozen=True)
class Standing:
    """How a deployment stands. `scheduled` is `ReplicasScheduled` as the scheduler has it; `staying` are replicas not being deleted."""

    wanted: int
    staying: list[TrackedReplica]
    answered: bool
    shortfall: int
    more: bool
    scheduled: PlacedCondition | None

    @classmethod
    def of(cls, state: DeploymentState) -> Self:
        """Read it from the state."""
        return cls(
            wanted=state.wanted,
            staying=state.staying(),
            answered=state.answered,
            shortfall=state.shortfall,
            more=state.more,
            scheduled=next((condition for condition in state.scheduler_conditions if condition.type == "ReplicasScheduled"), None),
        )


def conditions_of(state: DeploymentState) -> list[tuple[str, Verdict]]:
    """Give all conditions, in the order in which they are written: the scheduler's own ones first."""
    standing = Standing.of(state)
    return [
        *(
            (condition.type, Verdict(condition.status, condition.reason, condition.message))
            for condition in state.scheduler_conditions
            if condition.type != "ReplicasScheduled"
        ),
        ("ReplicasScheduled", scheduled_verdict(standing)),
        ("ReplicasReady", ready_replicas_verdict(standing)),
        ("Ready", ready_verdict(standing)),
    ]


def without_retracted(held: Sequence[Condition], before: Sequence[PlacedCondition], now: Sequence[PlacedCondition]) -> list[Condition]:
    """Give the conditions without those that were in the scheduler's last answer and are not in its new one: they are over."""
    retracted = {condition.type for condition in before} - {condition.type for condition in now}
    return [condition for condition in held if condition.type not in retracted]


def scheduled_verdict(standing: Standing) -> Verdict:
    """Judge `ReplicasScheduled`: a partial placement is False, with the scheduler's reasons."""
    counts = f"{len(standing.staying)} of {standing.wanted}"
    if standing.wanted == 0:
        return Verdict(TRUE, "ScaledToZero", "")
    if standing.scheduled is None or not standing.answered:
        return Verdict(FALSE, "Scheduling", f"{counts} replicas; waiting for the scheduler")
    if standing.shortfall or standing.scheduled.reason in ("InvalidNodeSelector", "NoClusters"):
        return Verdict(standing.scheduled.status, standing.scheduled.reason, standing.scheduled.message)
    if not any(replica.started for replica in standing.staying):
        return Verdict(FALSE, "Scheduling", f"{counts} replicas")
    return Verdict(TRUE, "ReplicasCreated", f"Scheduled {counts} replicas")


def ready_replicas_verdict(standing: Standing) -> Verdict:
    """Judge `ReplicasReady`: every placed replica, naming the first that is not."""
    if standing.wanted == 0:
        return Verdict(FALSE, "ScaledToZero", "")
    if not standing.staying:
        return Verdict(FALSE, "NoReplicasScheduled", "")
    waiting = [replica for replica in standing.staying if not replica.ready]
    counts = f"{len(standing.staying) - len(waiting)} of {len(standing.staying)} ready"
    if not waiting:
        return Verdict(TRUE, "AllReplicasReady", counts)
    first = waiting[0]
    detail = f"; {first.name} on {first.cluster}: {first.message}" if first.message else ""
    return Verdict(FALSE, "ModelStarting", counts + detail)


def ready_verdict(standing: Standing) -> Verdict:
    """Judge `Ready`: all that is wanted is placed, Ready, and carries the newest template that may be rolled out."""
    if standing.wanted == 0:
        return Verdict(FALSE, "ScaledToZero", "")
    scheduled, ready = scheduled_verdict(standing), ready_replicas_verdict(standing)
    blocked = next((verdict for verdict in (scheduled, ready) if verdict[0] != TRUE), None)
    current = standing.answered and not standing.more and all(replica.current for replica in standing.staying)
    if blocked is None and current:
        return Verdict(TRUE, "Available", "")
    why = f"{blocked[1]}: {blocked[2]}" if blocked else "rolling out a new generation"
    return Verdict(FALSE, "Unavailable" if any(replica.ready for replica in standing.staying) else "Creating", why)


def rollout_progress(staying: Sequence[TrackedReplica], template_generation: int, *, paused: bool) -> dict[str, Any]:
    """Count how far the present template has come: replicas that have it, those that are Ready with it, and all."""
    ordered = [replica for replica in staying if replica.generation >= template_generation]
    return {
        "templateGeneration": template_generation,
        "updated": len(ordered),
        "updatedReady": sum(replica.current for replica in ordered),
        "total": len(staying),
        "paused": paused,
    }


def status_of(state: DeploymentState, name: str) -> dict[str, Any]:
    """Give the status fields: counts, the scale selector and each replica."""
    staying = state.staying()
    status: dict[str, Any] = {
        "replicas": {"total": len(staying), "ready": sum(replica.ready for replica in staying)},
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
        paused = bool((state.spec.get("rollout") or {}).get("paused"))
        status["rollout"] = rollout_progress(staying, state.template_generation, paused=paused)
        status["rollout"]["revisions"] = [revision.generation for revision in state.revisions]
    if state.pace:
        pace = state.pace
        status["pace"] = {
            "generation": pace.generation,
            "placedSeconds": None if pace.placed_seconds is None else round(pace.placed_seconds, 3),
            "readySeconds": None if pace.ready_seconds is None else round(pace.ready_seconds, 3),
        }
    if state.last_scale:
        status["lastScale"] = state.last_scale.wire()
    return status
