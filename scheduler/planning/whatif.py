"""What a change of the fleet would do: a plan over the live fleet, which is only read.

One copy of the fleet takes the changes, every deployment is decided on it and on an unchanged copy, and the difference is the answer.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from api_types import taints
from scheduler.decide import ExplainedDecision, apply, decide
from scheduler.fleet.fleet import Fleet
from scheduler.hardware.template import charges
from scheduler.model import reasons
from scheduler.model.decision import Decision, Eviction, Placement
from scheduler.model.identity import Owner
from scheduler.model.inputs import ClusterView, DeploymentView, Taint
from scheduler.model.policy import SchedulerOptions
from scheduler.planning.settle import copy_of, queued, remove_releasing, settle, settle_and_explain

# A rollout that takes more steps than this would not end with more steps either.
STEPS_MAX = 10_000
MAINTENANCE = Taint(taints.MAINTENANCE["key"], effect=taints.MAINTENANCE["effect"])


@dataclass(frozen=True, slots=True)
class Changes:
    """What is changed.

    Attributes:
        clusters: clusters to add or to replace, with their pools, labels and taints.
        removed_clusters: names of clusters that are removed.
        drained: names of clusters that get the maintenance taint.
        failed_domains: (label, value): clusters with it are not Ready.
        deployments: deployments to add or to replace; a new replica count is a scale.
        removed_deployments: (namespace, name).
        options: the fleet's policy instead of the present one: quotas, profile, priorities.

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
    """One deployment before and after; `steps` is the number of decisions that its budgets stretch the change over."""

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
    """Nodes charged on a pool before and after, and what they cost per hour in thousandths (-1 = unknown price)."""

    before: int
    after: int
    cost_before: int
    cost_after: int


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The difference; `steps` lists, decision by decision, which replicas (cluster/name) are evicted, created or changed."""

    deployments: tuple[DeploymentDiff, ...] = ()
    pools: Mapping[tuple[str, str], PoolUse] = field(default_factory=dict)
    steps: tuple[tuple[str, ...], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be different."""
        return not self.deployments and not self.pools


def plan(fleet: Fleet, changes: Changes, deployments: Sequence[DeploymentView], now: int) -> PlanResult:
    """Work out what the changes would do to these deployments, given in the order of their arrival; `now` in ms.

    The fleet is only read.
    """
    views = _changed_views(changes, deployments)
    changed = with_changes(fleet, changes, now)
    before, after = settle(fleet, deployments, now), settle(changed, views, now)
    steps = _steps(copy_of(changed), views, now)
    diffs = []
    for owner in sorted({*before.decisions, *after.decisions}):
        was, becomes = before.decisions.get(owner), after.decisions.get(owner)
        diff = _difference(owner, was, becomes, after.evictions.get(owner, ()), sum(1 for step in steps if owner in step))
        if diff is not None:
            diffs.append(diff)
    pools = _pools(before.fleet, after.fleet)
    return PlanResult(tuple(diffs), pools, tuple(tuple(line for lines in step.values() for line in lines) for step in steps))


def explain_plan(
    fleet: Fleet, changes: Changes, deployments: Sequence[DeploymentView], now: int, owners: Container[Owner]
) -> list[ExplainedDecision]:
    """Give the decisions in which a plan ends for some deployments, with explanations, by namespace and name."""
    views = _changed_views(changes, deployments)

    def is_explained(decision: Decision) -> bool:
        return (decision.namespace, decision.deployment) in owners

    found = settle_and_explain(with_changes(fleet, changes, now), views, now, is_explained)
    return [found[owner] for owner in sorted(found) if owner in owners]


def _changed_views(changes: Changes, deployments: Sequence[DeploymentView]) -> list[DeploymentView]:
    """Give the deployments as changed; a new one arrives after those that are there."""
    views = {(view.namespace, view.name): view for view in (*deployments, *changes.deployments)}
    for owner in changes.removed_deployments:
        if owner in views:
            views[owner] = replace(views[owner], replicas=0)
    return list(views.values())


def with_changes(fleet: Fleet, changes: Changes, now: int) -> Fleet:
    """Give a copy of the fleet with the changes made, before anything is decided anew."""
    other = copy_of(fleet)
    if changes.options is not None:
        other.set_options(changes.options)
    for deployment in changes.deployments:
        # As the scheduler does when the request of an edited deployment arrives: whoever is decided before it sees it as edited.
        other.refresh_policy(deployment)
    for view in changes.clusters:
        other.put_cluster(view, now)
    for name in changes.removed_clusters:
        other.remove_cluster(name)
    for name in changes.drained:
        info = other.clusters.get(name)
        if info is not None and not any(taints.is_maintenance(taint.key, taint.effect) for taint in info.view.taints):
            other.put_cluster(replace(info.view, taints=(*info.view.taints, MAINTENANCE)), now)
    for key, value in changes.failed_domains:
        for info in list(other.clusters.values()):
            if info.view.labels.get(key) == value:
                other.put_cluster(replace(info.view, ready=False), now)
    return other


def _steps(fleet: Fleet, views: Sequence[DeploymentView], now: int) -> list[dict[Owner, list[str]]]:
    """Carry the changes out on a copy of the fleet under their budgets: after each step, released replicas are gone, new ones Ready."""
    steps: list[dict[Owner, list[str]]] = []
    changing = {(view.namespace, view.name): view for view in views}
    while changing and len(steps) < STEPS_MAX:
        step: dict[Owner, list[str]] = {}
        searching = False
        for decision in decide(fleet, queued(changing.values(), fleet.options, len(steps)), now):
            owner = (decision.namespace, decision.deployment)
            apply(fleet, decision, changing[owner])
            lines = [f"- {e.cluster}/{e.replica_name} {e.reason}" for e in (*decision.evictions, *decision.victims)]
            lines += [f"+ {p.cluster}/{p.replica_name} {p.action}" for p in decision.placements if p.action != reasons.KEEP]
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
        if step:
            steps.append(step)
        elif not searching:
            break
    return steps


def _difference(
    owner: Owner, was: Decision | None, becomes: Decision | None, evictions: tuple[Eviction, ...], steps: int
) -> DeploymentDiff | None:
    before = was.placements if was else ()
    after = becomes.placements if becomes else ()
    if _where(before) == _where(after) and not evictions and (was is None) == (becomes is None):
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
                found[name, pool] = PoolUse(before, after, _cost(old, name, pool, before), _cost(new, name, pool, after))
    return found


def _charged(fleet: Fleet, cluster: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for entry in fleet.ledger.on_cluster(cluster).values():
        for pool, nodes in charges(entry.engines).items():
            total[pool] = total.get(pool, 0) + nodes
    return total


def _cost(fleet: Fleet, cluster: str, pool: str, nodes: int) -> int:
    info = fleet.clusters.get(cluster)
    p = info.positions.get(pool) if info else None
    if info is None or p is None or info.pools[p].price_milli < 0:
        return 0 if nodes == 0 else -1
    return info.pools[p].price_milli * nodes
