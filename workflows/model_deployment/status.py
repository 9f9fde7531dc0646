"""What a ModelDeployment knows of its replicas, and what that means for its conditions: pure readings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from api_types.base import Message
from api_types.messages.entities import PlacedCondition
from api_types.resources.status import Condition
from workflows.entity.conditions import FALSE, TRUE

# (status, reason, message) of a condition.
Verdict = tuple[str, str, str]


class TrackedReplica(Message):
    """A replica of this deployment, from its placement to its last object gone."""

    uid: str
    name: str
    cluster: str
    index: int
    entry: dict[str, Any] = Field(default_factory=dict)
    after: list[str] = Field(default_factory=list)
    generation: int = 0
    started: bool = False
    bound: bool = False
    leaving: str = ""
    sequence: int = 0
    phase: str = "Pending"
    ready: bool = False
    serving: bool = False
    applied_generation: int = 0
    endpoint: str = ""
    message: str = ""

    @property
    def current(self) -> bool:
        """Ready with the template that was last ordered."""
        return self.ready and self.applied_generation == self.generation


class Pace(Message):
    """How fast a generation became real: from its acceptance (seconds since 1970) to the scheduler's answer and to Ready, in seconds."""

    generation: int
    accepted: float
    placed_seconds: float | None = None
    ready_seconds: float | None = None


@dataclass(frozen=True)
class Standing:
    """How a deployment stands. `said` is the scheduler's own word on `ReplicasScheduled`; `staying` are replicas that do not leave."""

    wanted: int
    staying: list[TrackedReplica]
    answered: bool
    shortfall: int
    more: bool
    said: PlacedCondition | None


def without_retracted(held: Sequence[Condition], before: Sequence[PlacedCondition], now: Sequence[PlacedCondition]) -> list[Condition]:
    """Give the conditions without those that the scheduler told before and tells no longer: a drift or an eviction that is over."""
    retracted = {condition.type for condition in before} - {condition.type for condition in now}
    return [condition for condition in held if condition.type not in retracted]


def scheduled_verdict(standing: Standing) -> Verdict:
    """Judge `ReplicasScheduled`: a partial placement is False, with the scheduler's reasons."""
    counts = f"{len(standing.staying)} of {standing.wanted}"
    if standing.wanted == 0:
        return TRUE, "ScaledToZero", ""
    if standing.said is None or not standing.answered:
        return FALSE, "Scheduling", f"{counts} replicas; waiting for the scheduler"
    if standing.shortfall or standing.said.reason in ("InvalidNodeSelector", "NoClusters"):
        return standing.said.status, standing.said.reason, standing.said.message
    if not any(held.started for held in standing.staying):
        return FALSE, "Scheduling", f"{counts} replicas"
    return TRUE, "ReplicasCreated", f"Scheduled {counts} replicas"


def ready_replicas_verdict(standing: Standing) -> Verdict:
    """Judge `ReplicasReady`: every placed replica, naming the first that is not."""
    if standing.wanted == 0:
        return FALSE, "ScaledToZero", ""
    if not standing.staying:
        return FALSE, "NoReplicasScheduled", ""
    waiting = [held for held in standing.staying if not held.ready]
    counts = f"{len(standing.staying) - len(waiting)} of {len(standing.staying)} ready"
    if not waiting:
        return TRUE, "AllReplicasReady", counts
    first = waiting[0]
    detail = f"; {first.name} on {first.cluster}: {first.message}" if first.message else ""
    return FALSE, "ModelStarting", counts + detail


def ready_verdict(standing: Standing) -> Verdict:
    """Judge `Ready`: all that is wanted is placed, Ready, and carries the newest template that may be rolled out."""
    if standing.wanted == 0:
        return FALSE, "ScaledToZero", ""
    scheduled, ready = scheduled_verdict(standing), ready_replicas_verdict(standing)
    blocked = next((verdict for verdict in (scheduled, ready) if verdict[0] != TRUE), None)
    current = standing.answered and not standing.more and all(held.current for held in standing.staying)
    if blocked is None and current:
        return TRUE, "Available", ""
    why = f"{blocked[1]}: {blocked[2]}" if blocked else "rolling out a new generation"
    return FALSE, "Unavailable" if any(held.ready for held in standing.staying) else "Creating", why


def rollout_progress(staying: Sequence[TrackedReplica], template_generation: int, *, paused: bool) -> dict[str, Any]:
    """Count how far the present template has come: replicas that have it, those that are Ready with it, and all."""
    ordered = [held for held in staying if held.generation >= template_generation]
    return {
        "templateGeneration": template_generation,
        "updated": len(ordered),
        "updatedReady": sum(held.current for held in ordered),
        "total": len(staying),
        "paused": paused,
    }
