"""A recount of all charges: nodes, devices, quotas.

`State` is a fleet as plain data. Each count answers one question for one deployment:
nodes of a releasing replica are free for the deployment that takes them over, and for
no other.
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
    """Equal pods: devices of one, their number, nodes that siblings may block, and
    their slots.
    """

    size: Vector
    count: int
    siblings: int
    slots: tuple[int, ...] = ()


@dataclass
class State:
    """A fleet at one moment.

    `older` has the engines of earlier templates whose pods may still run, by replica.
    """

    clusters: Mapping[str, ClusterView]
    entries: dict[str, LedgerEntry]
    options: SchedulerOptions
    preempted_at: Mapping[Owner, int]
    now: int
    older: Mapping[str, tuple[Engines, ...]] = field(default_factory=dict)

    def with_entries(self, *added: LedgerEntry) -> State:
        entries = {**self.entries, **{entry.uid: entry for entry in added}}
        return State(
            self.clusters,
            entries,
            self.options,
            self.preempted_at,
            self.now,
            self.older,
        )

    def on(self, cluster: str) -> list[LedgerEntry]:
        return [entry for entry in self.entries.values() if entry.cluster == cluster]

    def of(self, owner: Owner) -> list[LedgerEntry]:
        return [entry for entry in self.entries.values() if owner_of(entry) == owner]

    def pool(self, cluster: str, name: str) -> PoolView | None:
        view = self.clusters.get(cluster)
        return (
            next((pool for pool in view.pools if pool.name == name), None)
            if view
            else None
        )

    def accounting(self, pool: PoolView) -> str:
        """Return the accounting of a pool; packing without proof counts as safe."""
        chosen = self.options.class_accounting.get(
            pool.class_name, self.options.accounting
        )
        return (
            "device-safe"
            if chosen == "device-packed" and not self.options.packed_enforced
            else chosen
        )

    @property
    def counts_devices(self) -> bool:
        """Return whether any pool counts devices; placements then do not record reused
        nodes.
        """
        return any(
            unit != "node"
            for unit in (
                self.options.accounting,
                *self.options.class_accounting.values(),
            )
        )

    def engines_of(self, entry: LedgerEntry) -> list[Engines]:
        """Return the engines of an entry, including the earlier ones during an update."""
        return [entry.engines, *self.older.get(entry.uid, ())]

    def nodes_of(self, entry: LedgerEntry) -> Counter[str]:
        """Return the nodes of an entry per pool: the larger of before and after during
        an update.
        """
        held: Counter[str] = Counter()
        for engines in self.engines_of(entry):
            held |= nodes_of(engines)
        return held

    def free_nodes(
        self, cluster: str, owner: Owner, without: Collection[str] = ()
    ) -> dict[str, int]:
        """Return the free nodes per pool for one deployment.

        `without` are entries whose nodes the deployment would get.
        """
        free = {
            pool.name: pool.nodes for pool in reversed(self.clusters[cluster].pools)
        }
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
                # Nodes that new replicas of the nominee reuse are already charged to
                # them.
                for name in free:
                    free[name] -= max(
                        0, held[name] - reused.get(nominee, Counter())[name]
                    )
        return free

    def pods_on(
        self, cluster: str, pool: PoolView, owner: Owner, without: Collection[str] = ()
    ) -> list[Pods]:
        """Return the pods on a pool from the perspective of one deployment."""
        found: list[Pods] = []
        for entry in self.on(cluster):
            if entry.uid in without or (
                entry.state == "Releasing" and nominee_of(entry) == owner
            ):
                continue
            for engines in self.engines_of(entry):
                found += pods_of(engines, pool)
        return found

    def quota_used(
        self, quota: Quota, owner: Owner, without: Collection[str] = ()
    ) -> tuple[int, int]:
        """Return a namespace's use of a quota, without the nodes that this deployment
        takes over.
        """
        nodes = devices = 0
        for entry in self.entries.values():
            if (
                entry.namespace != quota.namespace
                or entry.uid in without
                or entry.cluster not in self.clusters
            ):
                continue
            if entry.state == "Releasing" and nominee_of(entry) == owner:
                continue
            amounts = [
                self.quota_amount(quota, entry.cluster, engines)
                for engines in self.engines_of(entry)
            ]
            # During an update both sizes of pods exist; whole nodes change hands.
            most = sum if self.counts_devices else max
            nodes += most(amount[0] for amount in amounts)
            devices += most(amount[1] for amount in amounts)
        return nodes, devices

    def quota_amount(
        self, quota: Quota, cluster: str, engines: Engines
    ) -> tuple[int, int]:
        """Return the nodes and devices of placed engines on the pools of a quota."""
        if not has(self.clusters[cluster].labels, quota.match_labels):
            return 0, 0
        nodes = devices = 0
        for engine, member in claiming(engines):
            pool = self.pool(cluster, member.pool)
            if pool is None or not concerns(quota, pool):
                continue
            nodes += member.pods * engine.copies
            devices += (
                member.pods
                * engine.copies
                * sum(request.count for request in member.requests)
            )
        return nodes, devices


def owner_of(entry: LedgerEntry) -> Owner:
    return entry.namespace, entry.deployment


def nominee_of(entry: LedgerEntry) -> Owner:
    """Return the deployment that may use a released entry's nodes.

    That is its own deployment, or the one it was preempted for.
    """
    return entry.nominated_for or owner_of(entry)


def claiming(engines: Engines) -> Iterable[tuple[EnginePlacement, MemberPlacement]]:
    return (
        (engine, member)
        for engine in engines
        for member in engine.members
        if member.requests
    )


def nodes_of(engines: Engines) -> Counter[str]:
    """Return the nodes per pool of placed engines: one per pod of each claiming member."""
    held: Counter[str] = Counter()
    for engine, member in claiming(engines):
        held[member.pool] += member.pods * engine.copies
    return held


def capacity_of(pool: PoolView) -> Vector:
    """Return the counted devices of one node, per entry."""
    return tuple(
        0 if entry.claim == "Synthetic" else max(0, entry.count)
        for entry in pool.device_set.entries
    )


def pods_of(engines: Engines, pool: PoolView) -> list[Pods]:
    """Return the pods of placed engines on a pool; a pod without a known draw takes a
    whole node.
    """
    found = []
    for engine, member in claiming(engines):
        if member.pool != pool.name:
            continue
        drawn = dict(member.draw)
        size = (
            tuple(
                0 if e.claim == "Synthetic" else drawn.get(e.name, 0)
                for e in pool.device_set.entries
            )
            if drawn
            else capacity_of(pool)
        )
        gang = member.role in ("Leader", "Worker")
        found.append(
            Pods(
                size,
                member.pods * engine.copies,
                (member.pods - 1) // max(1, member.pods_per_node) if gang else 0,
                member.slots,
            )
        )
    return found


def concerns(quota: Quota, pool: PoolView) -> bool:
    if quota.class_name and quota.class_name != pool.class_name:
        return False
    return not quota.device_selector or any(
        accepts(quota.device_selector, entry) for entry in pool.device_set.entries
    )


def is_safe(capacity: Vector, nodes: int, pods: Sequence[Pods]) -> bool:
    """Return whether every pod finds a node, whatever nodes the other pods have.

    This is the formula of safe accounting (`device_accounting`).
    """
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
                # The devices of its siblings are on the nodes that they block.
                blocked += (total - asked * (1 + group.siblings)) // least
        if blocked >= nodes:
            return False
    return True


def packed(
    capacity: Vector, nodes: int, charged: Sequence[Pods], added: Sequence[Pods]
) -> list[tuple[int, ...]] | None:
    """Choose slots for more pods, the largest first, each in the fullest slot that
    fits.

    Return None if a pod finds none.
    """
    left = slots_left(capacity, nodes, charged)
    slots: list[tuple[int, ...]] = [()] * len(added)
    for i in sorted(range(len(added)), key=lambda i: (-sum(added[i].size), i)):
        size, mine = added[i].size, list[int]()
        for _ in range(added[i].count):
            takes = [
                n
                for n in range(nodes)
                if all(a >= b for a, b in zip(left[n], size, strict=True))
                and not (added[i].siblings and n in mine)
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
                left[slot] = tuple(
                    a - b for a, b in zip(left[slot], group.size, strict=True)
                )
    return left


def admits(
    accounting: str, pool: PoolView, charged: Sequence[Pods], added: Sequence[Pods]
) -> bool:
    """Return whether a pool takes more pods in addition to the charged ones."""
    capacity = capacity_of(pool)
    if accounting == "node":
        return sum(group.count for group in (*charged, *added)) <= pool.nodes
    if accounting == "device-packed" and all(
        len(group.slots) == group.count for group in charged
    ):
        return packed(capacity, pool.nodes, charged, added) is not None
    return is_safe(capacity, pool.nodes, [*charged, *added])
