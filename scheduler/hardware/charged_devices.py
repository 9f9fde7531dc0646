"""The devices that pods take from the nodes of a pool; equal pods are counted together.

A pod takes a vector: a number of devices of each entry of the pool's device set, all
from one node. Whether more pods fit depends on the number of pods of each kind and, if
pods are packed, on the free devices of each node. Both are updated as pods come and go,
so that a decision does not count the pods of a cluster again.
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
    """Equal pods of one member.

    Attributes:
        size: devices that each pod takes.
        count: number of pods.
        siblings: number of nodes on which siblings of the pods can block a pod.
        slots: node numbers of the pods.

    """

    size: Vector
    count: int
    siblings: int = 0
    slots: tuple[int, ...] = ()


def capacity_of(pool: PoolView) -> Vector:
    """Return the claimable devices of one node, per entry."""
    return tuple(
        0 if entry.claim == "Synthetic" else max(0, entry.count)
        for entry in pool.device_set.entries
    )


def pods_of(member: MemberPlacement, copies: int, pool: PoolView) -> Pods:
    """Return the pods of a placed member.

    A pod without a known draw counts as taking a whole node.
    """
    drawn = dict(member.draw)
    entries = pool.device_set.entries
    claimed = tuple(
        0 if entry.claim == "Synthetic" else drawn.get(entry.name, 0)
        for entry in entries
    )
    size = claimed if drawn else capacity_of(pool)
    ganged = member.role in ("Leader", "Worker")
    siblings = (member.pods - 1) // max(1, member.pods_per_node) if ganged else 0
    return Pods(size, member.pods * copies, siblings, member.slots)


def pods_on(engines: Iterable[EnginePlacement], pool: PoolView) -> list[Pods]:
    """Return the claiming pods of placed engines on one pool."""
    found: list[Pods] = []
    for engine in engines:
        found += [
            pods_of(member, engine.copies, pool)
            for member in engine.members
            if member.pool == pool.name and member.requests
        ]
    return found


@dataclass(slots=True)
class PoolLoad:
    """The pods on the nodes of one pool.

    A slot is the number of a node.

    Attributes:
        count: number of all pods.
        without_slot: number of pods without a slot.
        kinds: per size and number of siblings, the number of pods and of members.
        left: free devices of the slots in use.

    """

    capacity: Vector
    nodes: int
    count: int = 0
    without_slot: int = 0
    kinds: dict[tuple[Vector, int], tuple[int, int]] = field(default_factory=dict)
    left: dict[int, Vector] = field(default_factory=dict)
    # Slots by free devices, in order; built when pods are packed for the first time.
    slots_by_left: dict[Vector, list[int]] | None = field(default=None, compare=False)

    @staticmethod
    def of(pool: PoolView) -> PoolLoad:
        """Return the load of a pool without pods."""
        return PoolLoad(capacity_of(pool), pool.nodes)

    def copy(self) -> PoolLoad:
        """Return an independent copy."""
        slots: dict[Vector, list[int]] | None = None
        if self.slots_by_left is not None:
            slots = {left: list(row) for left, row in self.slots_by_left.items()}
        return PoolLoad(
            self.capacity,
            self.nodes,
            self.count,
            self.without_slot,
            dict(self.kinds),
            dict(self.left),
            slots,
        )

    def add(self, pods: Pods, sign: int = 1) -> None:
        """Count pods, or remove them with sign -1."""
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
        """Yield the pods grouped by kind, without their slots."""
        for (size, siblings), (count, _) in self.kinds.items():
            yield Pods(size, count, siblings)

    def pack(self, added: Sequence[Pods]) -> list[tuple[int, ...]] | None:
        """Choose slots for added pods, the largest first, each in the tightest slot.

        Pods that already have slots keep them.

        Returns:
            The slots of each group of pods; None if there is no slot for a pod, or if existing
            pods have no slots.

        """
        if self.without_slot:
            return None
        self._filed()
        # Check this before anything is copied: if a pod does not fit alone, it does not
        # fit at all.
        if any(
            len(pods.slots) < pods.count and self._tightest(pods.size) < 0
            for pods in added
        ):
            return None
        trial = self.copy()
        chosen = [
            [slot for slot in pods.slots if 0 <= slot < self.nodes] for pods in added
        ]
        for pods, slots in zip(added, chosen, strict=True):
            for slot in slots:
                trial._take(slot, pods.size)  # noqa: SLF001  # same class
        for i in sorted(range(len(added)), key=lambda i: (-sum(added[i].size), i)):
            if not trial._pack_one(added[i], chosen[i]):  # noqa: SLF001  # same class
                return None
        return [tuple(slots) for slots in chosen]

    def _pack_one(self, pods: Pods, chosen: list[int]) -> bool:
        if pods.siblings:
            # Siblings must be on different nodes, so their slots are not offered again.
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
            insort(
                self._filed().setdefault(self.left.get(slot, self.capacity), []), slot
            )
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
        """Stop offering a slot, which has `left` devices."""
        others = self._filed()[left]
        others.pop(bisect_left(others, slot))
        if not others:
            del self._filed()[left]

    def _filed(self) -> dict[Vector, list[int]]:
        if self.slots_by_left is None:
            self.slots_by_left = {}
            for slot in range(self.nodes):
                self.slots_by_left.setdefault(
                    self.left.get(slot, self.capacity), []
                ).append(slot)
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
    """The pods on each pool of a cluster.

    `pools` are the pools for which the pods were counted.
    """

    __slots__ = ("_loads", "_pools", "_shared", "pools")

    def __init__(
        self,
        pools: Sequence[PoolView],
        entries: Iterable[LedgerEntry],
        shared: Mapping[str, PoolLoad] | None = None,
    ) -> None:
        self.pools = pools
        self._pools = {pool.name: pool for pool in pools}
        self._loads = dict(shared or {})
        # Pools whose load is shared with another cluster load.
        self._shared = set(self._loads)
        for entry in entries:
            self.charge(entry, 1)

    def copy(self) -> ClusterLoad:
        """Return an independent copy that shares loads until they change."""
        self._shared = set(self._loads)
        return ClusterLoad(self.pools, (), self._loads)

    def on(self, pool: PoolView) -> PoolLoad:
        """Return the load of a pool; callers must not change it."""
        return self._loads.get(pool.name) or PoolLoad.of(pool)

    def charge(self, entry: LedgerEntry, sign: int) -> None:
        """Add the pods of a replica, or remove them with sign -1."""
        for engine in entry.charged:
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
        """Return the names of the pools whose loads differ."""
        return [pool.name for pool in self.pools if self.on(pool) != other.on(pool)]
