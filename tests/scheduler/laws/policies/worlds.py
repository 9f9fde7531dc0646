"""Random small worlds with all policies at once; each follows from one number."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from api_types.names import replica_name
from scheduler.fleet.fleet import Fleet
from scheduler.hardware.device_matching import need_digest
from scheduler.hardware.device_sets import make_set
from scheduler.model.decision import EnginePlacement
from scheduler.model.inputs import (
    CacheView,
    ClusterTaint,
    ClusterView,
    DeploymentView,
    EngineView,
    LedgerEntry,
    MemberView,
    PoolView,
    ScheduleRequest,
)
from scheduler.model.policy import (
    AffinityTerm,
    PlacementPolicy,
    Quota,
    RolloutPolicy,
    SchedulerOptions,
    SpreadConstraint,
)
from tests.scheduler.builders import (
    IS_NIC,
    NOW,
    alone,
    ask,
    at_least,
    engine,
    gpu,
    leader,
    nic,
    tolerate,
    worker,
)
from tests.scheduler.laws.policies.books import Owner, State
from tests.scheduler.laws.policies.search import Filler

CLASSES = {
    "h8": (gpu("141Gi", 8),),
    "l4": (gpu("80Gi", 4),),
    "s2": (gpu("40Gi", 2),),
    "pair": (gpu("80Gi", 4, name="gpu-a"), gpu("80Gi", 4, name="gpu-b")),
    "net": (gpu("141Gi", 8), nic("infiniband", 2)),
    "fake": (gpu("141Gi", 8, claim="Synthetic"), gpu("80Gi", 4, name="real")),
}
SETS = {name: make_set(entries) for name, entries in CLASSES.items()}
PRIORITIES = {"mid": 50, "high": 100}
NAMESPACES = ("ml", "ml", "web")
TIERS = ("x", "y")
SECOND = 1000
ROLLOUTS = (
    RolloutPolicy("AllAtOnce"),
    RolloutPolicy("AllAtOnce"),
    RolloutPolicy(),
    RolloutPolicy(max_unavailable=2),
    RolloutPolicy(max_unavailable="50%"),
    RolloutPolicy(partition=1),
    RolloutPolicy(max_surge=1),
    RolloutPolicy(max_surge=2, max_unavailable=0, partition=2),
    RolloutPolicy(max_surge="50%", max_unavailable="25%"),
    RolloutPolicy(paused=True),
)


@dataclass(frozen=True)
class World:
    """A fleet as plain lists, and the scheduled deployments, in queue order."""

    seed: int
    options: SchedulerOptions
    clusters: tuple[ClusterView, ...]
    replicas: tuple[LedgerEntry, ...]
    deployments: tuple[DeploymentView, ...]
    preempted_at: tuple[tuple[Owner, int], ...] = ()

    def build(self) -> Fleet:
        made = Fleet(self.options)
        for view in self.clusters:
            made.put_cluster(view, NOW)
        for entry in self.replicas:
            made.put_replica(entry)
        made.preempted_at.update(dict(self.preempted_at))
        return made

    def requests(self) -> list[ScheduleRequest]:
        return [
            ScheduleRequest(f"ask-{view.namespace}-{view.name}", view)
            for view in self.deployments
        ]

    def state(self) -> State:
        entries = {entry.uid: entry for entry in self.replicas}
        return State(
            {view.name: view for view in self.clusters},
            entries,
            self.options,
            dict(self.preempted_at),
            NOW,
        )

    def __repr__(self) -> str:
        return f"random_world({self.seed})"


class Dice(random.Random):
    """A source of random numbers."""

    def chance(self, share: float) -> bool:
        return self.random() < share


def random_world(seed: int) -> World:
    """Make a world from its number."""
    dice = Dice(seed)
    options = _options(dice)
    clusters = tuple(_cluster(dice, name) for name in "abcde"[: dice.randint(2, 5)])
    asking = [_deployment(dice, f"d{i}") for i in range(dice.randint(2, 5))]
    crowded = dice.chance(0.4)
    if crowded:
        # In this case there are many replicas that the requesters may preempt.
        asking = [
            replace(view, replicas=max(2, view.replicas), policy=_urgent(view.policy))
            for view in asking
        ]
    asking.sort(key=lambda view: -options.priority_of(view.policy.priority_class))
    residents = [
        _resident(dice, f"r{i}")
        for i in range(dice.randint(2, 4) if crowded else dice.randint(0, 3))
    ]
    world = World(seed, options, clusters, (), tuple(asking))
    # Some were edited since their last decision: their replicas' protection and
    # avoidance is older.
    known = [
        replace(view, policy=_policy(dice), labels=_labels(dice, view.name))
        if dice.chance(0.15)
        else view
        for view in asking
    ]
    for view in (*known, *residents, *residents):
        for _ in range(
            dice.choice(
                (1, 2, 3, 4) if crowded and view in residents else (0, 0, 1, 1, 2, 3)
            )
        ):
            entry = _replica(dice, world, view)
            if entry is not None:
                world = replace(world, replicas=(*world.replicas, entry))
    # Some classes were edited under the replicas.
    world = replace(
        world,
        clusters=tuple(
            replace(c, pools=tuple(_drifted(dice, p) for p in c.pools))
            for c in world.clusters
        ),
    )
    some = [view for view in (*asking, *residents) if dice.chance(0.1)]
    times = [
        ((view.namespace, view.name), NOW - dice.choice((100, 599, 600)) * SECOND)
        for view in some
    ]
    return replace(world, preempted_at=tuple(times))


def _options(dice: Dice) -> SchedulerOptions:
    accounting = dice.choice(("node", "node", "node", "device-safe", "device-packed"))
    counted = {
        name: dice.choice(("node", "device-safe", "device-packed"))
        for name in CLASSES
        if dice.chance(0.3)
    }
    return SchedulerOptions(
        profile=dice.choice(("default", "default", "dense", "cheap", "balanced")),
        accounting=accounting,
        class_accounting=counted if dice.chance(0.2) else {},
        packed_enforced=dice.chance(0.8),
        priority_classes=PRIORITIES,
        quotas=tuple(_quota(dice) for _ in range(dice.choice((0, 0, 1, 2)))),
    )


def _quota(dice: Dice) -> Quota:
    return Quota(
        dice.choice(NAMESPACES),
        max_nodes=dice.choice((-1, 0, 1, 2, 3, 4, 6)),
        max_devices=dice.choice((-1, -1, -1, 4, 8, 16)),
        match_labels={"region": dice.choice(("us", "eu"))} if dice.chance(0.3) else {},
        class_name=dice.choice(tuple(CLASSES)) if dice.chance(0.4) else "",
        device_selector=at_least(dice.choice(("80Gi", "141Gi")))
        if dice.chance(0.2)
        else "",
        priority_floor=dice.choice((None, None, None, None, 50, 100)),
    )


def _cluster(dice: Dice, name: str) -> ClusterView:
    labels = {
        "region": dice.choice(("us", "eu")),
        "zone": dice.choice(("z1", "z2", "z3")),
    }
    return ClusterView(
        name,
        labels={key: value for key, value in labels.items() if dice.chance(0.9)},
        taints=(
            ClusterTaint(
                "x", "", dice.choice(("NoSchedule", "NoSchedule", "NoExecute"))
            ),
        )
        if dice.chance(0.1)
        else (),
        ready=dice.chance(0.95),
        gateway_address="" if dice.chance(0.04) else f"{name}.example",
        deleting=dice.chance(0.04),
        cache_storage_class="" if dice.chance(0.3) else "rwx",
        pools=tuple(
            _pool(dice, f"p{i}")
            for i in range(
                dice.choice((0, 1, 1, 2, 2, 2, 3, 4))
                if dice.chance(0.5)
                else dice.randint(1, 3)
            )
        ),
        missing_features=("dataParallel", "modelNames") if dice.chance(0.1) else (),
    )


def _pool(dice: Dice, name: str) -> PoolView:
    klass = dice.choice(("h8", "h8", "h8", *CLASSES))
    return PoolView(
        name,
        dice.choice((0, 1, 1, 2, 2, 3, 4, 5)),
        SETS[klass],
        klass,
        class_missing=dice.chance(0.03),
        network_domain=dice.choice(("", "n1", "n2")),
        price_milli=dice.choice((-1, 1000, 2000)),
        unusable="its driver is missing" if dice.chance(0.02) else "",
    )


def _drifted(dice: Dice, pool: PoolView) -> PoolView:
    klass = dice.choice(tuple(CLASSES))
    return (
        replace(pool, device_set=SETS[klass], class_name=klass)
        if dice.chance(0.02)
        else pool
    )


def _engine(dice: Dice, name: str) -> EngineView:
    requests = [
        ask(
            at_least(dice.choice(("40Gi", "40Gi", "80Gi", "141Gi"))),
            count=dice.choice((1, 1, 2, 4, 8)),
        )
    ]
    if dice.chance(0.1):
        requests.append(ask(IS_NIC, count=1, name="nic"))
    if dice.chance(0.65):
        return engine(name, alone(*requests), copies=dice.choice((1, 1, 1, 2, 3)))
    heads: MemberView = leader() if dice.chance(0.3) else leader(*requests)
    workers = replace(
        worker(dice.randint(1, 2), *requests), pods_per_node=dice.choice((1, 1, 2))
    )
    return engine(
        name, heads, workers, copies=dice.choice((1, 1, 2)), span_pools=dice.chance(0.5)
    )


def _deployment(dice: Dice, name: str) -> DeploymentView:
    split = dice.chance(0.25)
    engines = [
        _engine(dice, f"e{i}") for i in range(2 if split or dice.chance(0.1) else 1)
    ]
    cache = CacheView()
    if dice.chance(0.1):
        phases = {c: dice.choice(("Ready", "Pending")) for c in "abcde"}
        state = dice.choice(("Present", "Present", "Present", "Unresolved"))
        cache = CacheView(
            state, "weights", {"region": "us"} if dice.chance(0.3) else {}, phases
        )
    return DeploymentView(
        namespace=dice.choice(NAMESPACES),
        name=name,
        uid=f"uid-{name}",
        generation=1,
        replicas=dice.choice((0, 1, 1, 2, 2, 3, 4, 5)),
        match_labels={"region": "us"} if dice.chance(0.1) else {},
        tolerations=(tolerate("x"),) if dice.chance(0.3) else (),
        cache=cache,
        serving_mode="PrefillDecode" if split else "Unified",
        engines=tuple(engines),
        template="v1",
        labels=_labels(dice, name),
        policy=_policy(dice),
    )


def _labels(dice: Dice, name: str) -> dict[str, str]:
    return {"app": name, "tier": dice.choice(TIERS)}


def _resident(dice: Dice, name: str) -> DeploymentView:
    """Make a deployment with replicas that is not scheduled.

    Most have no priority, and some blocking ones go.
    """
    view = _deployment(dice, name)
    policy = replace(
        _policy(dice),
        affinity=(),
        priority_class=dice.choice(("", "", "", "mid", "high")),
    )
    return replace(view, policy=policy)


def _urgent(policy: PlacementPolicy) -> PlacementPolicy:
    return (
        replace(policy, preemption="LowerPriority") if policy.priority_class else policy
    )


def _term(dice: Dice) -> AffinityTerm:
    return AffinityTerm(
        {"tier": dice.choice(TIERS)}
        if dice.chance(0.7)
        else {"app": f"d{dice.randint(0, 3)}"},
        dice.choice(("", "zone", "region")),
        dice.choice(((), (), ("ml", "web"))),
        0 if dice.chance(0.7) else dice.randint(1, 10),
    )


def _policy(dice: Dice) -> PlacementPolicy:
    klass = dice.choice(("", "", "mid", "high", "high"))
    rollout = dice.choice(ROLLOUTS)
    return PlacementPolicy(
        rollout=rollout,
        profile=dice.choice(("", "", "", "dense", "cheap", "default")),
        priority_class=klass,
        preemption="LowerPriority" if klass and dice.chance(0.7) else "Never",
        min_available=dice.choice((0, 0, 0, 1, 2)),
        topology_spread=(
            SpreadConstraint(
                dice.choice(("zone", "region")),
                dice.randint(1, 2),
                _when(dice),
                dice.choice((0, 0, 2, 3)),
            ),
        )
        if dice.chance(0.15)
        else (),
        affinity=(_term(dice),) if dice.chance(0.1) else (),
        anti_affinity=(_term(dice),) if dice.chance(0.15) else (),
        network_domain=dice.choice(("Ignore", "Ignore", "Required", "Preferred")),
        gang_replicas=dice.choice((1, 1, 1, 1, 2, 3)),
        cache_required="Ready" if dice.chance(0.3) else "",
    )


def _when(dice: Dice) -> str:
    return "DoNotSchedule" if dice.chance(0.8) else "ScheduleAnyway"


def _replica(dice: Dice, world: World, view: DeploymentView) -> LedgerEntry | None:
    """Place one more replica of a deployment at random, mostly where there is room,
    some by an earlier template.
    """
    edited = dice.chance(0.15)
    if edited:
        view = replace(
            view, engines=tuple(_edited(dice, e) for e in view.engines), template="v0"
        )
    state = world.state()
    # A leaving replica holds its nodes, even for its own deployment: only a decision
    # lets a new replica wait for them.
    state.entries = {
        uid: replace(entry, nominated_for=("", ""))
        for uid, entry in state.entries.items()
    }
    filler = Filler(state, view, 0)
    names = [name for name in state.clusters if filler.matches[name].units is not None]
    if not names:
        return None
    at = dice.choice(names)
    found = list(filler.arrangements(state, at, rules=False))
    if not found and dice.chance(0.9):
        return None
    units = filler.matches[at].units or []
    pools = (
        dice.choice(found)
        if found
        else tuple(dice.choice(unit.pools) for unit in units)
    )
    index = next(
        i
        for i in range(100)
        if all(
            (e.cluster, e.index) != (at, i)
            for e in state.of((view.namespace, view.name))
        )
    )
    number = len(world.replicas)
    engines = _stamped(view, filler.placed(state, at, pools, number).engines)
    entry_state = dice.choice(("Bound",) * 8 + ("Reserved", "Releasing"))
    ready = entry_state == "Bound" and dice.chance(0.8)
    preemptors = [
        (v.namespace, v.name)
        for v in world.deployments
        if world.options.priority_of(v.policy.priority_class) > 0
    ]
    return LedgerEntry(
        f"uid-{number:02}",
        view.namespace,
        view.name,
        at,
        index,
        replica_name(view.namespace, view.name, at, index),
        engines,
        entry_state,
        priority=world.options.priority_of(view.policy.priority_class),
        priority_class=view.policy.priority_class,
        since=NOW - dice.randint(0, 3) * SECOND,
        ready=ready,
        serving=ready,
        template=view.template,
        labels=tuple(sorted(view.labels.items())),
        min_available=view.policy.min_available,
        avoids=tuple(
            (t.topology_key, t.namespaces, tuple(sorted(t.match_labels.items())))
            for t in view.policy.anti_affinity
            if not t.weight
        ),
        nominated_for=dice.choice(preemptors)
        if entry_state == "Releasing" and preemptors and dice.chance(0.4)
        else None,
        origin=(view.uid, f"before-{number}"),
    )


def edited_later(dice: Dice, view: DeploymentView) -> DeploymentView:
    """Return a deployment's later request: most are unchanged, some are scaled, edited,
    or have another policy.
    """
    if dice.chance(0.3):
        view = replace(view, replicas=dice.randint(0, 5))
    if dice.chance(0.15):
        view = replace(
            view, engines=tuple(_edited(dice, e) for e in view.engines), template="v2"
        )
    if dice.chance(0.1):
        view = replace(view, policy=_policy(dice))
    return view


def _edited(dice: Dice, one: EngineView) -> EngineView:
    if dice.chance(0.6):
        return replace(one, copies=dice.choice((1, 2, 3)))
    members = tuple(
        replace(
            m,
            requests=tuple(
                replace(r, count=dice.choice((1, 2, 4))) for r in m.requests
            ),
        )
        for m in one.members
    )
    return replace(one, members=members)


def _stamped(
    view: DeploymentView, engines: Sequence[EnginePlacement]
) -> tuple[EnginePlacement, ...]:
    """Return placed engines with the digests of their requests, as a decision stamps
    them.
    """
    return tuple(
        replace(
            placed,
            members=tuple(
                replace(p, need=need_digest(m.requests))
                for p, m in zip(placed.members, wanted.members, strict=True)
            ),
        )
        for placed, wanted in zip(engines, view.engines, strict=True)
    )
