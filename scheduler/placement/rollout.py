"""Budgets: how many replicas may change at a time.

A changed replica counts as unavailable until it is Ready with its new template. So no
position of a rollout has to be stored: the next request after a replica became Ready
starts the next step. Replicas that serve no traffic change first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.fleet.overlay import FleetOverlay
from scheduler.model import reasons
from scheduler.model.inputs import DeploymentView
from scheduler.model.policy import SchedulerOptions
from scheduler.placement.retain import RetainedReplica, same_placement

_PERCENT = 100


@dataclass(slots=True)
class RolloutBudget:
    """The remaining changes of one decision; None means no limit."""

    left: int | None
    surge: int = 0

    def take(self) -> bool:
        """Use one change; return False if none is left."""
        if self.left is None:
            return True
        if self.left <= 0:
            return False
        self.left -= 1
        return True


def amount(value: int | str, total: int, *, up: bool) -> int:
    """Read a whole number or a percentage of `total`, rounded up or down.

    Raise ValueError on anything else.
    """
    if isinstance(value, int):
        return max(0, value)
    if value.endswith("%") and value[:-1].isdigit():
        share = int(value[:-1]) * total
        return -(-share // _PERCENT) if up else share // _PERCENT
    if value.isdigit():
        return int(value)
    raise ValueError(
        f"{value!r} is neither a whole number nor a percentage such as 25%"
    )


def unavailable_limit(deployment: DeploymentView, options: SchedulerOptions) -> int:
    """Return how many replicas a rollout may make unavailable."""
    value = deployment.policy.rollout.max_unavailable
    return amount(
        options.rollout_max_unavailable if value is None else value,
        deployment.replicas,
        up=False,
    )


def budget_of(
    overlay: FleetOverlay, deployment: DeploymentView, kept: Sequence[RetainedReplica]
) -> RolloutBudget:
    """Return how many replicas may change now."""
    rollout = deployment.policy.rollout
    if rollout.paused:
        return RolloutBudget(0)
    if not overlay.rules.pace_rollouts or rollout.type == "AllAtOnce":
        return RolloutBudget(None)
    surge = amount(rollout.max_surge, deployment.replicas, up=True)
    limit = unavailable_limit(deployment, overlay.options)
    if not surge:
        limit = max(1, limit)
    return RolloutBudget(
        max(0, limit - sum(in_flight(deployment, k) for k in kept)), surge
    )


def in_flight(deployment: DeploymentView, kept: RetainedReplica) -> bool:
    """Return whether a replica has the current template but is not Ready with it yet."""
    return (
        bool(deployment.template)
        and kept.entry.template == deployment.template
        and not kept.entry.ready
    )


def is_outdated(deployment: DeploymentView, kept: RetainedReplica) -> bool:
    """Return whether a replica can and must be updated to the template in place."""
    if kept.target is None:
        return False
    known = kept.entry.template
    if known and deployment.template and known != deployment.template:
        return True
    placed = {engine.engine: engine for engine in kept.entry.engines}
    return any(
        not same_placement(engine, placed[engine.engine]) for engine in kept.target
    )


def changeable(
    deployment: DeploymentView, kept: Sequence[RetainedReplica]
) -> list[RetainedReplica]:
    """Return the replicas that the partition lets change.

    Replicas that serve no traffic come first, then the order is by name.
    """
    partitioned = partitioned_replicas(deployment, kept)
    ranked = [k for k in kept if k.entry.uid not in partitioned]
    return sorted(
        ranked,
        key=lambda k: (k.entry.serving or k.entry.ready, k.entry.ready, k.entry.name),
    )


def partitioned_replicas(
    deployment: DeploymentView, kept: Sequence[RetainedReplica]
) -> frozenset[str]:
    """Return the uids of the replicas that keep the old template.

    These are the first replicas with the old template, by cluster and index. New
    replicas do not count: otherwise a surge replica that sorts before the others would
    replace one of them in this set, and each step would change another one.
    """
    partition = deployment.policy.rollout.partition
    if not partition:
        return frozenset()
    mismatched = (reasons.PIN_MISMATCH, reasons.TEMPLATE_CHANGED)
    found = (
        k for k in kept if k.replace_reason in mismatched or is_outdated(deployment, k)
    )
    old = sorted(found, key=lambda k: (k.entry.cluster, k.entry.index))
    return frozenset(k.entry.uid for k in old[:partition])


def drained_replicas(
    deployment: DeploymentView, kept: Sequence[RetainedReplica], now: int
) -> list[RetainedReplica]:
    """Return the replicas on drained clusters that this decision evicts."""
    draining = [k for k in kept if k.drain_reason]
    drain = deployment.policy.drain
    limit = amount(drain.max_unavailable, deployment.replicas, up=False)
    if isinstance(drain.max_unavailable, str) and drain.max_unavailable != "0%":
        limit = max(1, limit)
    undrained = [k for k in kept if not k.drain_reason]
    missing = max(0, deployment.replicas - len(kept)) + sum(
        not k.entry.ready for k in undrained
    )
    if limit >= deployment.replicas:
        return draining
    allowed = max(0, limit - missing)
    overdue = [
        k
        for k in draining
        if drain.deadline_seconds
        and now - k.drain_since >= drain.deadline_seconds * 1000
    ]
    rest = sorted(
        (k for k in draining if k not in overdue),
        key=lambda k: (k.entry.ready, k.entry.name),
    )
    return overdue + rest[: max(0, allowed - len(overdue))]


def next_drain_deadline(
    deployment: DeploymentView, kept: Sequence[RetainedReplica]
) -> int:
    """Return when the budget stops protecting a drained replica, in ms; 0 if never."""
    seconds = deployment.policy.drain.deadline_seconds
    since = [k.drain_since for k in kept if k.drain_reason]
    return min(since) + seconds * 1000 if since and seconds else 0
