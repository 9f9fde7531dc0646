"""Decide all deployments on a copy of a fleet, up to their final state.

Rollout and drain budgets are ignored. One decision of the live scheduler is only the
first step towards that state, because budgets divide a change into many steps. Plans
and questions show the final state; `whatif` shows the steps as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from scheduler.decide import (
    ExplainedDecision,
    apply,
    decide,
    decide_and_explain,
    in_queue_order,
)
from scheduler.fleet.fleet import Fleet
from scheduler.model import reasons
from scheduler.model.decision import Decision, Eviction
from scheduler.model.identity import Owner
from scheduler.model.inputs import DeploymentView, ScheduleRequest
from scheduler.model.policy import DrainPolicy, RolloutPolicy, SchedulerOptions


@dataclass(frozen=True, slots=True)
class Settled:
    """A copy of a fleet after all decisions, with decisions and evictions by owner."""

    fleet: Fleet
    decisions: Mapping[Owner, Decision]
    evictions: Mapping[Owner, tuple[Eviction, ...]]


def settle(fleet: Fleet, views: Iterable[DeploymentView], now: int) -> Settled:
    """Decide deployments up to their final state.

    Released replicas and the old pods of updated replicas are gone.

    The fleet itself is only read. `views` are in the order of their arrival, which
    resolves ties between equal priorities.
    """
    settled = copy_of(fleet)
    ends = [end_state(view) for view in views]
    asked = {(end.namespace, end.name): end for end in ends}
    decisions: dict[Owner, Decision] = {}
    evictions: dict[Owner, list[Eviction]] = {}
    for decision in decide(
        settled, queued(ends, settled.options), now, to_the_end=True
    ):
        owner = (decision.namespace, decision.deployment)
        apply(settled, decision, asked[owner])
        decisions[owner] = decision
        for eviction in (*decision.evictions, *decision.victims):
            evictions.setdefault((eviction.namespace, eviction.deployment), []).append(
                eviction
            )
    remove_releasing(settled)
    for entry in list(settled.entries()):
        settled.end_update(entry.uid)
    return Settled(
        settled, decisions, {owner: tuple(found) for owner, found in evictions.items()}
    )


def settle_and_explain(
    fleet: Fleet,
    views: Iterable[DeploymentView],
    now: int,
    is_explained: Callable[[Decision], bool] = lambda _: True,
) -> dict[Owner, ExplainedDecision]:
    """Return the decisions of `settle` in the order in which they are made.

    The decisions that `is_explained` selects have explanations.
    """
    requests = queued([end_state(view) for view in views], fleet.options)
    return {
        explained.owner: explained
        for explained in decide_and_explain(
            fleet, requests, now, is_explained, to_the_end=True
        )
    }


def end_state(view: DeploymentView) -> DeploymentView:
    """Return a deployment without budgets, so that one decision shows its final state."""
    policy = replace(
        view.policy,
        rollout=RolloutPolicy("AllAtOnce", partition=view.policy.rollout.partition),
        drain=DrainPolicy(),
    )
    return replace(view, policy=policy)


def queued(
    views: Iterable[DeploymentView], options: SchedulerOptions, step: int = 0
) -> list[ScheduleRequest]:
    """Return a request per deployment, in queue order."""
    return in_queue_order(
        [
            ScheduleRequest(f"plan-{step}/{view.namespace}/{view.name}", view)
            for view in views
        ],
        options,
    )


def copy_of(fleet: Fleet) -> Fleet:
    """Return a fleet that starts equal to another one and changes independently.

    Views and placed engines are shared.
    """
    other = Fleet(fleet.options)
    for info in fleet.clusters.values():
        other.index.put(info.view)
    other.use_ledger(fleet.ledger.fork())
    other.preempted_at = dict(fleet.preempted_at)
    other.queue_reservations = dict(fleet.queue_reservations)
    other.unfinished_searches = dict(fleet.unfinished_searches)
    other.ended_searches = dict(fleet.ended_searches)
    other.refused = dict(fleet.refused)
    other.awaited = fleet.awaited
    other.class_names = fleet.class_names
    other.version = fleet.version
    return other


def remove_releasing(fleet: Fleet) -> None:
    """Free the nodes of every releasing replica, as if its objects were gone."""
    for entry in list(fleet.entries()):
        if entry.state == reasons.RELEASING:
            fleet.release(entry.uid)
