"""Deciding on this machine, over a fleet that is only read.

The scheduler's own code answers, so a plan says what the scheduler would do; the scheduler itself is never asked to decide.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from client.refs.tree import Tree
from scheduler import (
    Decision,
    DeploymentView,
    Fleet,
    FleetOverlay,
    ScheduleRequest,
    SchedulingCycle,
    build_decision,
    cluster_details,
    decision_tree,
    ordered,
    priority_of,
)


@dataclass(frozen=True)
class Planned:
    """A decision, and its tree in the form of `plan -o json`; the tree is empty where nobody asked for it."""

    decision: Decision
    tree: Tree


def now_ms() -> int:
    """Give the present time as the scheduler counts it."""
    return int(time.time() * 1000)


def decide_all(fleet: Fleet, views: Sequence[DeploymentView], now: int, shown: Callable[[Decision], bool]) -> list[Planned]:
    """Decide deployments by priority, then in the given order, each after the ones before it; answers come in the given order.

    A tree, which visits every pool of the fleet, is made for the decisions that shall be `shown`.
    """
    requests = [ScheduleRequest(f"{view.namespace}/{view.name}", view, submitted=number) for number, view in enumerate(views)]
    overlay = FleetOverlay(fleet, now)
    found: dict[str, Planned] = {}
    for request in ordered(requests, fleet.options):
        cycle = SchedulingCycle(overlay, request, priority_of(request.deployment, fleet.options))
        cycle.run()
        decision = build_decision(cycle)
        tree = decision_tree(decision, cluster_details(cycle)) if shown(decision) else {}
        cycle.finish()
        found[request.request_id] = Planned(decision, tree)
    return [found[request.request_id] for request in requests]
