"""What is charged, counted anew each time: nodes (9), devices (18.1), quotas (18.4#5).

`State` is a fleet as plain data. Its counts answer one question each, for one deployment: what a releasing replica still holds is free for
the deployment that takes it over, and for no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from scheduler.model.decision import EnginePlacement, MemberPlacement
from scheduler.model.inputs import ClusterView, LedgerEntry, PoolView
from scheduler.model.policy import Quota, SchedulerOptions
from tests.scheduler.laws.policies.matching import accepts, has

Owner = tuple[str, str]
Vector = tuple[int, ...]
Engines = tuple[EnginePlacement, ...]


@dataclass(frozen=True)
class Pods:
    """Pods alike: what one takes of its node, how many, how many nodes its siblings may hold against it, and their slots if they have."""

    size: Vector
    count: int
    siblings: int
    slots: tuple[int, ...] = ()


@dataclass
class State:
    """A fleet at one moment. `larger` are the engines that a replica had before an update that is under way."""

    clusters: Mapping[str, ClusterView]
    entries: dict[str, LedgerEntry]
    options: SchedulerOptions
    preempted_at: Mapping[Owner, int]
    now: int
    larger: Mapping[str, Engines] = field(default_factory=dict)

    def with_entries(self, *added: LedgerEntry) -> State:
        entries = {**self.entries, **{entry.uid: entry for entry in added}}
        return State(self.clusters, entries, self.options, self.preempted_at, self.now, self.larger)

    def on(self, cluster: str) -> list[LedgerEntry]:
        return [entry for entry in self.entries.values() if entry.cluster == cluster]

    def of(self, owner: Owner) -> list[LedgerEntry]:
        return [entry for entry in self.entries.values() if owner_of(entry) == owner]

    def pool(self, cluster: str, name: str) -> PoolView | None:
        view = self.clusters.get(cluster)
        return next((pool for pool in view.pools if pool.name == name), None) if view else None

    def accounting(self, pool: PoolView) -> str:
        """Give how a pool is counted (18.1#1, 18.1#6)."""
        chosen = self.options.class_accounting.get(pool.class_name, self.options.accounting)
        return "device-safe" if chosen == "device-packed" and not self.options.packed_enforced else chosen

    @property
    def counts_devices(self) -> bool:
        """Whether any pool is counted by device: then placements do not say which nodes they reuse."""
        return any(unit != "node" for unit in (self.options.accounting, *self.options.class_accounting.values()))

    def engines_of(self, entry: LedgerEntry) -> list[Engines]:
        """Give the engines of an entry, and those it has besides while it is updated."""
        other = self.larger.get(entry.uid)
        return [entry.engines] if other is None else [entry.engines, other]

    def nodes_of(self, entry: LedgerEntry) -> Counter[str]:
        """Give the nodes that an entry holds, per pool: the larger of before and after while it is updated."""
        held: Counter[str] = Counter()
        for engines in self.engines_of(entry):
            held |= nodes_of(engines)
        return held

    def free_nodes(self, cluster: str, owner: Owner, without: Collection[str] = ()) -> dict[str, int]:
        """Give the free nodes per pool for one deployment; `without` are entries whose nodes it would get."""
        free = {pool.name: pool.nodes for pool in reversed(self.clusters[cluster].pools)}
        leaving: dict[Owner, Counter[str]] = {}
        reused: dict[Owner, Counter[str]] = {}
        for entry in self.on(cluster):
            nominee = nominee_of(entry)
            if entry.uid in without:
                continue
            if entry.state == "Releasing":
                leaving.setdefault(nominee, Counter()).update(self.nodes_of(entry))
            else:
                for name, nodes in self.nodes_of(entry).items():
                    if name in free:
                        free[name] -= nodes
            reused.setdefault(nominee, Counter()).update(dict(entry.reuse))
        for nominee, held in leaving.items():
            if nominee != owner:
                # What new replicas of the nominee use of them is charged to those already.
                for name in free:
                    free[name] -= max(0, held[name] - reused.get(nominee, Counter())[name])
        return free

    def pods_on(self, cluster: str, pool: PoolView, owner: Owner, without: Collection[str] = ()) -> list[Pods]:
        """Give the pods that one deployment finds on a pool."""
        found: list[Pods] = []
        for entry in self.on(cluster):
            if entry.uid in without or (entry.state == "Releasing" and nominee_of(entry) == owner):
                continue
            for engines in self.engines_of(entry):
                found += pods_of(engines, pool)
        return found

    def quota_used(self, quota: Quota, owner: Owner, without: Collection[str] = ()) -> tuple[int, int]:
        """Give nodes and devices that a namespace uses of a quota, without what this deployment takes over."""
        nodes = devices = 0
        for entry in self.entries.values():
            if entry.namespace != quota.namespace or entry.uid in without or entry.cluster not in self.clusters:
                continue
            if entry.state == "Releasing" and nominee_of(entry) == owner:
                continue
            amounts = [self.quota_amount(quota, entry.cluster, engines) for engines in self.engines_of(entry)]
            # Pods of two sizes are both there until an update is done; whole nodes change hands.
            most = sum if self.counts_devices else max
            nodes += most(amount[0] for amount in amounts)
            devices += most(amount[1] for amount in amounts)
        return nodes, devices

    def quota_amount(self, quota: Quota, cluster: str, engines: Engines) -> tuple[int, int]:
        """Give nodes and devices of placed engines on the pools that a quota is about."""
        if not has(self.clusters[cluster].labels, quota.match_labels):
            return 0, 0
        nodes = devices = 0
        for engine, member in claiming(engines):
            pool = self.pool(cluster, member.pool)
            if pool is None or not concerns(quota, pool):
                continue
            nodes += member.pods * engine.copies
            devices += member.pods * engine.copies * sum(request.count for request in member.requests)
        return nodes, devices


def owner_of(entry: LedgerEntry) -> Owner:
    return entry.namespace, entry.deployment


def nominee_of(entry: LedgerEntry) -> Owner:
    """Give the deployment that may use the nodes of an entry once it is released: its own, or the one it was preempted for."""
    return entry.nominated_for or owner_of(entry)


def claiming(engines: Engines) -> Iterable[tuple[EnginePlacement, MemberPlacement]]:
    return ((engine, member) for engine in engines for member in engine.members if member.requests)


def nodes_of(engines: Engines) -> Counter[str]:
    """Give the nodes per pool of placed engines: one per pod of each member that claims (5.3)."""
    held: Counter[str] = Counter()
    for engine, member in claiming(engines):
        held[member.pool] += member.pods * engine.copies
    return held


def capacity_of(pool: PoolView) -> Vector:
    """Give the devices of one node that are counted, entry by entry (18.1#2)."""
    return tuple(0 if entry.claim == "Synthetic" else max(0, entry.count) for entry in pool.device_set.entries)


def pods_of(engines: Engines, pool: PoolView) -> list[Pods]:
    """Give the pods of placed engines on a pool; one whose devices are not known takes a whole node."""
    found = []
    for engine, member in claiming(engines):
        if member.pool != pool.name:
            continue
        drawn = dict(member.draw)
        size = tuple(0 if e.claim == "Synthetic" else drawn.get(e.name, 0) for e in pool.device_set.entries) if drawn else capacity_of(pool)
        gang = member.role in ("Leader", "Worker")
        found.append(
            Pods(size, member.pods * engine.copies, (member.pods - 1) // max(1, member.pods_per_node) if gang else 0, member.slots)
        )
    return found


def concerns(quota: Quota, pool: PoolView) -> bool:
    if quota.class_name and quota.class_name != pool.class_name:
        return False
    return not quota.device_selector or any(accepts(quota.device_selector, entry) for entry in pool.device_set.entries)


def is_safe(capacity: Vector, nodes: int, pods: Sequence[Pods]) -> bool:
    """Whether every pod finds a node whatever nodes the others were given: the formula of 18.1#3 and 18.1#4."""
    present = [group for group in pods if group.count]
    for group in present:
        blocked = group.siblings
        for e, have in enumerate(capacity):
            asked = group.size[e]
            if asked > have:
                return False
            if asked:
                step = gcd(*(other.size[e] for other in present))
                total = sum(other.size[e] * other.count for other in present)
                least = have - asked + 1
                least += -least % step
                # What its siblings take is on the nodes that they hold against it.
                blocked += (total - asked * (1 + group.siblings)) // least
        if blocked >= nodes:
            return False
    return True


def packed(capacity: Vector, nodes: int, charged: Sequence[Pods], added: Sequence[Pods]) -> list[tuple[int, ...]] | None:
    """Give slots for more pods, the largest first, each in the fullest slot that takes it (18.1#6); None if one finds none."""
    left = slots_left(capacity, nodes, charged)
    slots: list[tuple[int, ...]] = [()] * len(added)
    for i in sorted(range(len(added)), key=lambda i: (-sum(added[i].size), i)):
        size, mine = added[i].size, list[int]()
        for _ in range(added[i].count):
            takes = [
                n for n in range(nodes) if all(a >= b for a, b in zip(left[n], size, strict=True)) and not (added[i].siblings and n in mine)
            ]
            if not takes:
                return None
            chosen = min(takes, key=lambda n: (sum(left[n]), n))
            left[chosen] = tuple(a - b for a, b in zip(left[chosen], size, strict=True))
            mine.append(chosen)
        slots[i] = tuple(mine)
    return slots


def slots_left(capacity: Vector, nodes: int, charged: Sequence[Pods]) -> list[Vector]:
    left = [capacity] * nodes
    for group in charged:
        for slot in group.slots:
            if slot < nodes:
                left[slot] = tuple(a - b for a, b in zip(left[slot], group.size, strict=True))
    return left


def admits(accounting: str, pool: PoolView, charged: Sequence[Pods], added: Sequence[Pods]) -> bool:
    """Whether a pool takes more pods beside those charged to it."""
    capacity = capacity_of(pool)
    if accounting == "node":
        return sum(group.count for group in (*charged, *added)) <= pool.nodes
    if accounting == "device-packed" and all(len(group.slots) == group.count for group in charged):
        return packed(capacity, pool.nodes, charged, added) is not None
    return is_safe(capacity, pool.nodes, [*charged, *added])
