"""Plan a change of the live fleet without making it.

The changes are applied to one copy of the fleet. Every deployment is decided on it and
on an unchanged copy, and the difference is the result.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from api_types import taints
from scheduler.decide import ExplainedDecision, apply, decide
from scheduler.fleet.fleet import Fleet
from scheduler.hardware.template import charges
from scheduler.model import reasons
from scheduler.model.decision import Decision, Eviction, Placement
from scheduler.model.identity import Owner
from scheduler.model.inputs import ClusterTaint, ClusterView, DeploymentView
from scheduler.model.policy import SchedulerOptions
from scheduler.planning.settle import (
    copy_of,
    queued,
    remove_releasing,
    settle,
    settle_and_explain,
)

# A rollout that takes more steps than this would not end with more steps either.
STEPS_MAX = 10_000
MAINTENANCE = ClusterTaint(
    taints.MAINTENANCE["key"], effect=taints.MAINTENANCE["effect"]
)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a plan.

    Attributes:
        clusters: clusters to add or replace, with their pools, labels and taints.
        removed_clusters: names of clusters to remove.
        drained: names of clusters that get the maintenance taint.
        failed_domains: (label, value) pairs; clusters with such a label are not Ready.
        deployments: deployments to add or replace; a new replica count is a scale.
        removed_deployments: (namespace, name) pairs.
        options: replaces the fleet's policy: quotas, profile, priorities.

    """

    clusters: tuple[ClusterView, ...] = ()
    removed_clusters: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    failed_domains: tuple[tuple[str, str], ...] = ()
    deployments: tuple[DeploymentView, ...] = ()
    removed_deployments: tuple[Owner, ...] = ()
    options: SchedulerOptions | None = None


@dataclass(frozen=True, slots=True)
class DeploymentDiff:
    """One deployment before and after.

    `steps` is the number of decisions into which its budgets divide the change.
    """

    namespace: str
    name: str
    before: tuple[Placement, ...]
    after: tuple[Placement, ...]
    evictions: tuple[Eviction, ...]
    shortfall: int
    message: str
    steps: int


@dataclass(frozen=True, slots=True)
class PoolUse:
    """Nodes charged on a pool before and after.

    The cost is per hour in thousandths, -1 for an unknown price.
    """

    before: int
    after: int
    cost_before: int
    cost_after: int


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The result of a plan.

    `steps` lists per decision which replicas (cluster/name) are evicted, created or
    changed.
    """

    deployments: tuple[DeploymentDiff, ...] = ()
    pools: Mapping[tuple[str, str], PoolUse] = field(default_factory=dict)
    steps: tuple[tuple[str, ...], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether the plan changes nothing."""
        return not self.deployments and not self.pools


def plan(
    fleet: Fleet, changes: Changes, deployments: Sequence[DeploymentView], now: int
) -> PlanResult:
    """Compute the effect of the changes on these deployments; `now` is in ms.

    The deployments are in the order of their arrival. The fleet is only read.
    """
    views = _changed_views(changes, deployments)
    changed = with_changes(fleet, changes, now)
    before, after = settle(fleet, deployments, now), settle(changed, views, now)
    steps = _steps(copy_of(changed), views, now)
    diffs = []
    for owner in sorted({*before.decisions, *after.decisions}):
        was, becomes = before.decisions.get(owner), after.decisions.get(owner)
        diff = _difference(
            owner,
            was,
            becomes,
            after.evictions.get(owner, ()),
            sum(1 for step in steps if owner in step),
        )
        if diff is not None:
            diffs.append(diff)
    pools = _pools(before.fleet, after.fleet)
    lines = tuple(tuple(chain.from_iterable(step.values())) for step in steps)
    return PlanResult(tuple(diffs), pools, lines)


def explain_plan(
    fleet: Fleet,
    changes: Changes,
    deployments: Sequence[DeploymentView],
    now: int,
    owners: Container[Owner],
) -> list[ExplainedDecision]:
    """Return the final decisions of a plan for some deployments, with explanations.

    They are sorted by namespace and name.
    """
    views = _changed_views(changes, deployments)

    def is_explained(decision: Decision) -> bool:
        return (decision.namespace, decision.deployment) in owners

    found = settle_and_explain(
        with_changes(fleet, changes, now), views, now, is_explained
    )
    return [found[owner] for owner in sorted(found) if owner in owners]


def _changed_views(
    changes: Changes, deployments: Sequence[DeploymentView]
) -> list[DeploymentView]:
    """Return the changed deployments; new ones arrive after the existing ones."""
    views = {
        (view.namespace, view.name): view
        for view in (*deployments, *changes.deployments)
    }
    for owner in changes.removed_deployments:
        if owner in views:
            views[owner] = replace(views[owner], replicas=0)
    return list(views.values())


def with_changes(fleet: Fleet, changes: Changes, now: int) -> Fleet:
    """Return a copy of the fleet with the changes, before any new decision."""
    other = copy_of(fleet)
    if changes.options is not None:
        other.set_options(changes.options)
    for deployment in changes.deployments:
        # The live scheduler does the same when the request of an edited deployment
        # arrives, so that earlier decisions see the edited policy.
        other.refresh_policy(deployment)
    for view in changes.clusters:
        other.put_cluster(view, now)
    for name in changes.removed_clusters:
        other.remove_cluster(name)
    for name in changes.drained:
        info = other.clusters.get(name)
        if info is None:
            continue
        known = info.view.taints
        if not any(taints.is_maintenance(taint.key, taint.effect) for taint in known):
            drained = replace(info.view, taints=(*known, MAINTENANCE))
            other.put_cluster(drained, now)
    for key, value in changes.failed_domains:
        for info in list(other.clusters.values()):
            if info.view.labels.get(key) == value:
                other.put_cluster(replace(info.view, ready=False), now)
    return other


def _steps(
    fleet: Fleet, views: Sequence[DeploymentView], now: int
) -> list[dict[Owner, list[str]]]:
    """Carry out the changes on a copy of the fleet within the budgets.

    After each step released replicas are gone and new ones are Ready.
    """
    steps: list[dict[Owner, list[str]]] = []
    changing = {(view.namespace, view.name): view for view in views}
    while changing and len(steps) < STEPS_MAX:
        step: dict[Owner, list[str]] = {}
        searching = False
        for decision in decide(
            fleet, queued(changing.values(), fleet.options, len(steps)), now
        ):
            owner = (decision.namespace, decision.deployment)
            apply(fleet, decision, changing[owner])
            lines = [
                f"- {e.cluster}/{e.replica_name} {e.reason}"
                for e in (*decision.evictions, *decision.victims)
            ]
            lines += [
                f"+ {p.cluster}/{p.replica_name} {p.action}"
                for p in decision.placements
                if p.action != reasons.KEEP
            ]
            if lines:
                step[owner] = lines
            searching |= decision.search_goes_on
            if not decision.more and not lines:
                del changing[owner]
        remove_releasing(fleet)
        for entry in list(fleet.entries()):
            if (entry.namespace, entry.deployment) in changing:
                fleet.bind(entry.uid, now)
                fleet.observe(entry.uid, ready=True, serving=True)
                fleet.end_update(entry.uid)
        if step:
            steps.append(step)
        elif not searching:
            break
    return steps


def _difference(
    owner: Owner,
    was: Decision | None,
    becomes: Decision | None,
    evictions: tuple[Eviction, ...],
    steps: int,
) -> DeploymentDiff | None:
    before = was.placements if was else ()
    after = becomes.placements if becomes else ()
    if (
        _where(before) == _where(after)
        and not evictions
        and (was is None) == (becomes is None)
    ):
        return None
    shortfall, message = (becomes.shortfall, becomes.message) if becomes else (0, "")
    return DeploymentDiff(*owner, before, after, evictions, shortfall, message, steps)


def _where(placements: Iterable[Placement]) -> set[tuple[object, ...]]:
    return {(p.cluster, p.index, p.engines, p.template) for p in placements}


def _pools(old: Fleet, new: Fleet) -> dict[tuple[str, str], PoolUse]:
    found = {}
    for name in sorted({*old.clusters, *new.clusters}):
        used = (_charged(old, name), _charged(new, name))
        for pool in sorted({*used[0], *used[1]}):
            before, after = used[0].get(pool, 0), used[1].get(pool, 0)
            if before != after:
                found[name, pool] = PoolUse(
                    before,
                    after,
                    _cost(old, name, pool, before),
                    _cost(new, name, pool, after),
                )
    return found


def _charged(fleet: Fleet, cluster: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for entry in fleet.ledger.on_cluster(cluster).values():
        for pool, nodes in charges(entry.charged).items():
            total[pool] = total.get(pool, 0) + nodes
    return total


def _cost(fleet: Fleet, cluster: str, pool: str, nodes: int) -> int:
    info = fleet.clusters.get(cluster)
    p = info.positions.get(pool) if info else None
    if info is None or p is None or info.pools[p].price_milli < 0:
        return 0 if nodes == 0 else -1
    return info.pools[p].price_milli * nodes
