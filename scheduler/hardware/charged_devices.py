"""The devices that pods take of the nodes of a pool, pods alike counted together.

A pod takes a vector, so many devices of each entry of the pool's device set, all of them of one node. Whether more pods fit beside those
that are there depends on how many there are of each kind, and where pods are packed on what is left on each node; both are kept as pods
come and go, so that a decision does not count the pods of a cluster again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.model.decision import EnginePlacement, MemberPlacement
from scheduler.model.inputs import LedgerEntry, PoolView

Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods alike of one member: how many, what each takes, on how many nodes its siblings can block it, and the nodes they have."""

    size: Vector
    count: int
    siblings: int = 0
    slots: tuple[int, ...] = ()


def capacity_of(pool: PoolView) -> Vector:
    """Give the claimable devices of one node, entry by entry."""
    return tuple(0 if entry.claim == "Synthetic" else max(0, entry.count) for entry in pool.device_set.entries)


def pods_of(member: MemberPlacement, copies: int, pool: PoolView) -> Pods:
    """Give the pods of a placed member; one whose draw is not known counts as taking whole nodes."""
    drawn = dict(member.draw)
    entries = pool.device_set.entries
    claimed = tuple(0 if entry.claim == "Synthetic" else drawn.get(entry.name, 0) for entry in entries)
    size = claimed if drawn else capacity_of(pool)
    ganged = member.role in ("Leader", "Worker")
    siblings = (member.pods - 1) // max(1, member.pods_per_node) if ganged else 0
    return Pods(size, member.pods * copies, siblings, member.slots)


def pods_on(engines: Iterable[EnginePlacement], pool: PoolView) -> list[Pods]:
    """Give the claiming pods of placed engines on one pool."""
    return [pods_of(m, e.copies, pool) for e in engines for m in e.members if m.pool == pool.name and m.requests]


@dataclass(slots=True)
class PoolLoad:
    """The pods on the nodes of one pool.

    `count` are all of them, `without_slot` those that have no node; a slot is the number of a node. `kinds` has for each size and
    number of siblings the pods, and the members that have such pods; `left` what is left on the slots that are used.
    """

    capacity: Vector
    nodes: int
    count: int = 0
    without_slot: int = 0
    kinds: dict[tuple[Vector, int], tuple[int, int]] = field(default_factory=dict)
    left: dict[int, Vector] = field(default_factory=dict)
    # The slots on which so much is left, in order; made when pods are packed for the first time.
    slots_by_left: dict[Vector, list[int]] | None = field(default=None, compare=False)

    @staticmethod
    def of(pool: PoolView) -> PoolLoad:
        """Give the load of a pool without any pods."""
        return PoolLoad(capacity_of(pool), pool.nodes)

    def copy(self) -> PoolLoad:
        """Give a load that starts equal to this one and changes alone."""
        slots = None if self.slots_by_left is None else {left: list(slots) for left, slots in self.slots_by_left.items()}
        return PoolLoad(self.capacity, self.nodes, self.count, self.without_slot, dict(self.kinds), dict(self.left), slots)

    def add(self, pods: Pods, sign: int = 1) -> None:
        """Count pods, or with sign -1 remove them."""
        key = (pods.size, pods.siblings)
        count, members = self.kinds.get(key, (0, 0))
        if members + sign:
            self.kinds[key] = (count + sign * pods.count, members + sign)
        else:
            del self.kinds[key]
        self.count += sign * pods.count
        if len(pods.slots) != pods.count:
            self.without_slot += sign * pods.count
            return
        for slot in pods.slots:
            if 0 <= slot < self.nodes:
                self._take(slot, tuple(sign * devices for devices in pods.size))

    def pods(self) -> Iterator[Pods]:
        """Give the pods, those alike together and without their slots."""
        for (size, siblings), (count, _) in self.kinds.items():
            yield Pods(size, count, siblings)

    def pack(self, added: Sequence[Pods]) -> list[tuple[int, ...]] | None:
        """Give slots for added pods, the largest first into the tightest slot that fits; those that have one keep it.

        Returns:
            The slots of each group of pods; None if a pod finds none, or where pods are that have none.

        """
        if self.without_slot:
            return None
        self._filed()
        # Before anything is copied: what finds no node alone finds none beside others.
        if any(len(pods.slots) < pods.count and self._tightest(pods.size) < 0 for pods in added):
            return None
        trial = self.copy()
        chosen = [[slot for slot in pods.slots if 0 <= slot < self.nodes] for pods in added]
        for pods, slots in zip(added, chosen, strict=True):
            for slot in slots:
                trial._take(slot, pods.size)  # noqa: SLF001  # same class
        for i in sorted(range(len(added)), key=lambda i: (-sum(added[i].size), i)):
            if not trial._pack_one(added[i], chosen[i]):  # noqa: SLF001  # same class
                return None
        return [tuple(slots) for slots in chosen]

    def _pack_one(self, pods: Pods, chosen: list[int]) -> bool:
        if pods.siblings:
            # No two of them on one node: what they have is not offered to the next.
            for slot in dict.fromkeys(chosen):
                self._withdraw(slot, self.left.get(slot, self.capacity))
        while len(chosen) < pods.count:
            slot = self._tightest(pods.size)
            if slot < 0:
                return False
            self._take(slot, pods.size)
            if pods.siblings:
                self._withdraw(slot, self.left.get(slot, self.capacity))
            chosen.append(slot)
        for slot in dict.fromkeys(chosen) if pods.siblings else ():
            insort(self._filed().setdefault(self.left.get(slot, self.capacity), []), slot)
        return True

    def _tightest(self, size: Vector) -> int:
        best, least = -1, 0
        for left, slots in self._filed().items():
            if any(a < b for a, b in zip(left, size, strict=True)):
                continue
            if best < 0 or (sum(left), slots[0]) < (least, best):
                best, least = slots[0], sum(left)
        return best

    def _withdraw(self, slot: int, left: Vector) -> None:
        """Offer a slot, on which so much is left, no more."""
        others = self._filed()[left]
        others.pop(bisect_left(others, slot))
        if not others:
            del self._filed()[left]

    def _filed(self) -> dict[Vector, list[int]]:
        if self.slots_by_left is None:
            self.slots_by_left = {}
            for slot in range(self.nodes):
                self.slots_by_left.setdefault(self.left.get(slot, self.capacity), []).append(slot)
        return self.slots_by_left

    def _take(self, slot: int, size: Vector) -> None:
        before = self.left.get(slot, self.capacity)
        after = tuple(a - b for a, b in zip(before, size, strict=True))
        if after == self.capacity:
            self.left.pop(slot, None)
        else:
            self.left[slot] = after
        if self.slots_by_left is not None:
            self._withdraw(slot, before)
            insort(self.slots_by_left.setdefault(after, []), slot)


class ClusterLoad:
    """The pods on each pool of a cluster; `pools` are those that it was counted for."""

    __slots__ = ("_loads", "_pools", "_shared", "pools")

    def __init__(self, pools: Sequence[PoolView], entries: Iterable[LedgerEntry], shared: Mapping[str, PoolLoad] | None = None) -> None:
        self.pools = pools
        self._pools = {pool.name: pool for pool in pools}
        self._loads = dict(shared or {})
        # Pools whose load another cluster load has too.
        self._shared = set(self._loads)
        for entry in entries:
            self.charge(entry, 1)

    def copy(self) -> ClusterLoad:
        """Give a load that starts equal to this one; each changes alone."""
        self._shared = set(self._loads)
        return ClusterLoad(self.pools, (), self._loads)

    def on(self, pool: PoolView) -> PoolLoad:
        """Give what is charged to a pool, not to be changed."""
        return self._loads.get(pool.name) or PoolLoad.of(pool)

    def charge(self, entry: LedgerEntry, sign: int) -> None:
        """Add the pods of a replica, or with sign -1 remove them."""
        for engine in entry.engines:
            for member in engine.members:
                pool = self._pools.get(member.pool) if member.requests else None
                if pool is not None:
                    self._own(pool).add(pods_of(member, engine.copies, pool), sign)

    def _own(self, pool: PoolView) -> PoolLoad:
        load = self._loads.get(pool.name)
        if load is None:
            load = self._loads[pool.name] = PoolLoad.of(pool)
        elif pool.name in self._shared:
            self._shared.remove(pool.name)
            load = self._loads[pool.name] = load.copy()
        return load

    def differences(self, other: ClusterLoad) -> list[str]:
        """Name the pools whose loads differ."""
        return [pool.name for pool in self.pools if self.on(pool) != other.on(pool)]
