"""What would happen if: a plan over the live fleet that touches nothing.

A copy of the fleet takes the changes, every deployment is decided on the copy and on the original, and the difference is the answer. The
copy shares everything it does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from api_types import labels
from scheduler.decide import apply, decide, ordered
from scheduler.fleet.fleet import Fleet
from scheduler.hardware.template import charges
from scheduler.model import reasons
from scheduler.model.decision import Decision, Eviction, Placement
from scheduler.model.identity import Owner
from scheduler.model.inputs import ClusterView, DeploymentView, ScheduleRequest, Taint
from scheduler.model.policy import SchedulerOptions
from scheduler.planning.plan import end_state

# A rollout over this many steps does not end for a reason that no further step would mend.
STEPS_MAX = 10_000
MAINTENANCE = Taint(labels.MAINTENANCE, "", "NoExecute")


@dataclass(frozen=True, slots=True)
class Changes:
    """What is changed.

    Attributes:
        clusters: clusters to add or to replace, with their pools, labels and taints.
        removed_clusters: names of clusters that are gone.
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
    """The difference; `steps` lists, decision by decision, which replicas (cluster/name) leave, come or change."""

    deployments: tuple[DeploymentDiff, ...] = ()
    pools: Mapping[tuple[str, str], PoolUse] = field(default_factory=dict)
    steps: tuple[tuple[str, ...], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be different."""
        return not self.deployments and not self.pools


def plan(fleet: Fleet, changes: Changes, deployments: Sequence[DeploymentView], now: int) -> PlanResult:
    """Work out what the changes would do to these deployments; `now` in ms. The fleet is only read."""
    before_views = {(view.namespace, view.name): view for view in deployments}
    after_views = dict(before_views)
    for view in changes.deployments:
        after_views[view.namespace, view.name] = view
    for owner in changes.removed_deployments:
        if owner in after_views:
            after_views[owner] = replace(after_views[owner], replicas=0)
    old, _, before = settle(copy_of(fleet), before_views, now)
    world = changed(fleet, changes, now)
    new, evicted, after = settle(world, after_views, now)
    stepped = _steps(changed(fleet, changes, now), after_views, now)
    diffs = []
    for owner in sorted({*before, *after}):
        was, becomes = before.get(owner), after.get(owner)
        diff = _difference(owner, was, becomes, tuple(evicted.get(owner, ())), sum(1 for step in stepped if owner in step))
        if diff is not None:
            diffs.append(diff)
    return PlanResult(tuple(diffs), _pools(old, new), tuple(tuple(line for lines in step.values() for line in lines) for step in stepped))


def copy_of(fleet: Fleet) -> Fleet:
    """Give a fleet that starts equal and changes alone; views and stamps are shared."""
    other = Fleet(fleet.options)
    for slot in fleet.clusters.values():
        other.index.put(slot.view)
    other.ledger = fleet.ledger.fork()
    other.full_clusters = type(fleet.full_clusters)(other.index, other.ledger)
    other.preempted_at = dict(fleet.preempted_at)
    other.queue_reservations = dict(fleet.queue_reservations)
    other.refused = dict(fleet.refused)
    other.rebuilding = fleet.rebuilding
    other.version = fleet.version
    return other


def changed(fleet: Fleet, changes: Changes, now: int) -> Fleet:
    """Give a copy of the fleet with the changes made."""
    other = copy_of(fleet)
    if changes.options is not None:
        other.set_options(changes.options)
    for view in changes.clusters:
        other.put_cluster(view, now)
    for name in changes.removed_clusters:
        other.remove_cluster(name)
    for name in changes.drained:
        slot = other.clusters.get(name)
        if slot is not None:
            other.put_cluster(replace(slot.view, taints=(*slot.view.taints, MAINTENANCE)), now)
    for key, value in changes.failed_domains:
        for slot in list(other.clusters.values()):
            if slot.view.labels.get(key) == value:
                other.put_cluster(replace(slot.view, ready=False), now)
    return other


def _requests(world: Fleet, views: Mapping[Owner, DeploymentView], step: int) -> list[ScheduleRequest]:
    made = [ScheduleRequest(f"plan-{step}/{view.namespace}/{view.name}", view) for view in views.values()]
    return ordered(made, world.options)


def settle(
    world: Fleet, views: Mapping[Owner, DeploymentView], now: int
) -> tuple[Fleet, dict[Owner, list[Eviction]], dict[Owner, Decision]]:
    """Decide everything at once, budgets aside, and let leaving replicas be gone.

    The fleet given is changed and given back, with the evictions and the decision of each deployment; plan on a copy (`copy_of`).
    """
    ends = {owner: end_state(view) for owner, view in views.items()}
    evicted: dict[Owner, list[Eviction]] = {}
    found: dict[Owner, Decision] = {}
    for decision in decide(world, _requests(world, ends, 0), now):
        apply(world, decision, ends[decision.namespace, decision.deployment])
        found[decision.namespace, decision.deployment] = decision
        for eviction in (*decision.evictions, *decision.victims):
            evicted.setdefault((eviction.namespace, eviction.deployment), []).append(eviction)
    release_leaving(world)
    return world, evicted, found


def _steps(world: Fleet, views: Mapping[Owner, DeploymentView], now: int) -> list[dict[Owner, list[str]]]:
    """Play the change through under its budgets: after each step what leaves is gone and what came is Ready."""
    steps: list[dict[Owner, list[str]]] = []
    open_views = dict(views)
    while open_views and len(steps) < STEPS_MAX:
        step: dict[Owner, list[str]] = {}
        for decision in decide(world, _requests(world, open_views, len(steps)), now):
            apply(world, decision, open_views[decision.namespace, decision.deployment])
            lines = [f"- {e.cluster}/{e.replica_name} {e.reason}" for e in (*decision.evictions, *decision.victims)]
            lines += [f"+ {p.cluster}/{p.replica_name} {p.action}" for p in decision.placements if p.action != reasons.KEEP]
            if lines:
                step[decision.namespace, decision.deployment] = lines
            if not decision.more and not lines:
                open_views.pop((decision.namespace, decision.deployment))
        release_leaving(world)
        for entry in list(world.entries()):
            if (entry.namespace, entry.deployment) in open_views:
                world.bind(entry.uid, now)
                world.observe(entry.uid, ready=True, serving=True)
        if not step:
            break
        steps.append(step)
    return steps


def release_leaving(world: Fleet) -> None:
    """Let every leaving replica of a copy be gone."""
    for entry in list(world.entries()):
        if entry.state == reasons.RELEASING:
            world.release(entry.uid)


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


def _charged(world: Fleet, cluster: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for entry in world.ledger.on_cluster(cluster).values():
        for pool, nodes in charges(entry.engines).items():
            total[pool] = total.get(pool, 0) + nodes
    return total


def _cost(world: Fleet, cluster: str, pool: str, nodes: int) -> int:
    slot = world.clusters.get(cluster)
    p = slot.positions.get(pool) if slot else None
    if slot is None or p is None or slot.pools[p].price_milli < 0:
        return 0 if nodes == 0 else -1
    return slot.pools[p].price_milli * nodes
