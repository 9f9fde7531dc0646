"""Accounting by devices instead of whole nodes.

A pod takes a vector of devices from one node. The cluster's own scheduler chooses the
node, so there are two modes:

- safe: a pod is admitted only if no pod is ever left without a node, whatever nodes the
  scheduler picks and in whatever order the pods come back after a restart. Take one kind of
  device with D per node. A node rejects a pod of size s if it already carries T or more,
  where T is the smallest multiple of the greatest common divisor of all sizes that exceeds
  D - s. So at most (U - s) // T nodes can block the pod, where U is the number of devices in
  use, and that must be less than the number of nodes. Each kind of device can block nodes,
  so their sum must be less.
- packed: the tightest node slot that fits is chosen here, and the placement records it. This
  requires that the cluster follows slots.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from scheduler.fleet.caches.loads_beside import LoadsBeside
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.charged_devices import (
    ClusterLoad,
    Pods,
    PoolLoad,
    Vector,
    capacity_of,
    pods_of,
    pods_on,
)
from scheduler.hardware.node_fitting import (
    CUT_SHORT,
    NO_RULES,
    STEPS_MAX,
    FitRules,
    PoolOrder,
    Room,
    SearchBudget,
    Trial,
)
from scheduler.hardware.template import CompiledTemplate
from scheduler.model.decision import EnginePlacement
from scheduler.model.identity import Owner
from scheduler.model.inputs import PoolView
from scheduler.model.policy import DEVICE_PACKED, DEVICE_SAFE, WHOLE_NODES

# An owner that may not use devices of any releasing replica.
NO_OWNER: Owner = ("", "")
# The cost of packing the pods on the nodes of a pool, in steps of a search that only
# counts nodes.
_STEPS_PER_POOL = 30


def counts_devices(overlay: FleetOverlay) -> bool:
    """Return whether some pools count devices instead of whole nodes."""
    return overlay.rules.count_devices


def accounting_of(overlay: FleetOverlay, pool: PoolView) -> str:
    """Return the accounting of a pool.

    Packing requires that clusters are known to follow slots. Otherwise counting is safe
    instead.
    """
    chosen = overlay.options.class_accounting.get(
        pool.class_name, overlay.options.accounting
    )
    if chosen == DEVICE_PACKED and not overlay.options.packed_enforced:
        return DEVICE_SAFE
    return chosen


def packs(overlay: FleetOverlay, pool: PoolView) -> bool:
    """Return whether pods on a pool get slots."""
    return overlay.rules.count_devices and accounting_of(overlay, pool) == DEVICE_PACKED


def charged_load(
    overlay: FleetOverlay,
    info: ClusterInfo,
    owner: Owner,
    without: Collection[str] = (),
) -> ClusterLoad:
    """Return the load of a cluster without the owner's releasing replicas.

    Callers must not change it. `without` are uids of replicas that are treated as gone.
    """
    ledger = overlay.ledger
    beside: LoadsBeside | None = None
    if ledger.releasing(*owner, info.name):
        beside = overlay.loads_beside(owner)
        load = beside.on(info.name, info.pools)
    else:
        load = ledger.load(info.name, info.pools)
    gone = []
    for uid in without:
        entry = ledger.get(uid)
        if entry is None or entry.cluster != info.name:
            continue
        if beside is None or not beside.leaves(entry):
            gone.append(entry)
    if gone:
        load = load.copy()
        for entry in gone:
            load.charge(entry, -1)
    return load


def is_safe(capacity: Vector, nodes: int, pods: Sequence[Pods]) -> bool:
    """Return whether there is a node for each pod, whatever nodes the other pods use."""
    kinds = dict.fromkeys((group.size, group.siblings) for group in pods if group.count)
    kinds_of_entry = range(len(capacity))
    total = [sum(group.size[e] * group.count for group in pods) for e in kinds_of_entry]
    divisor = [0] * len(capacity)
    for size, _ in kinds:
        for e in kinds_of_entry:
            divisor[e] = gcd(divisor[e], size[e])
    for size, siblings in kinds:
        blocked = siblings
        for e in kinds_of_entry:
            if size[e] > capacity[e]:
                return False
            if size[e]:
                least = -(-(capacity[e] - size[e] + 1) // divisor[e]) * divisor[e]
                # The devices of its siblings are on nodes that the siblings block
                # already.
                blocked += (total[e] - size[e] * (1 + siblings)) // least
        if blocked >= nodes:
            return False
    return True


def admits(
    overlay: FleetOverlay, pool: PoolView, charged: PoolLoad, added: Sequence[Pods]
) -> bool:
    """Return whether a pool takes more pods in addition to the charged ones."""
    if accounting_of(overlay, pool) == WHOLE_NODES:
        # The pod takes its whole node, regardless of its claims.
        return charged.count + sum(group.count for group in added) <= pool.nodes
    if packs(overlay, pool) and not charged.without_slot:
        return charged.pack(added) is not None
    return is_safe(charged.capacity, pool.nodes, [*charged.pods(), *added])


def most_beside(
    overlay: FleetOverlay, pool: PoolView, charged: PoolLoad, added: Sequence[Pods]
) -> float:
    """Return an upper bound of how many times a pool takes more pods."""
    pods = sum(group.count for group in added)
    if not pods:
        return math.inf
    if accounting_of(overlay, pool) == WHOLE_NODES:
        return max(0, pool.nodes - charged.count) // pods
    bound = math.inf
    for e, devices in enumerate(charged.capacity):
        needed = sum(group.size[e] * group.count for group in added)
        used = sum(group.size[e] * group.count for group in charged.pods())
        if needed:
            bound = min(bound, max(0, devices * pool.nodes - used) // needed)
    return bound


def fit_devices(
    overlay: FleetOverlay,
    compiled: CompiledTemplate,
    info: ClusterInfo,
    owner: Owner,
    rules: FitRules = NO_RULES,
    *,
    budget: SearchBudget,
    order: PoolOrder | None = None,
    without: Collection[str] = (),
) -> Trial:
    """Find a pool for every engine by counting devices.

    The engines are tried in order first, then in any arrangement.

    Args:
        overlay: the fleet.
        compiled: the engines.
        info: the cluster.
        owner: the deployment whose releasing replicas hold devices that these engines
            may use.
        rules: further rules for the arrangement.
        budget: budget of the decision; once it is spent, the engines are only tried in
            order.
        order: returns the pools of an engine in the order to try them; default is
            published order.
        without: uids of replicas that are treated as gone.

    """
    fit = compiled.on(info.layout)
    charged: ClusterLoad | None = None
    choices = [
        engine.positions if order is None else order(i, engine.positions)
        for i, engine in enumerate(fit.engines)
    ]
    room = Room(rules)
    chosen: list[int] = []
    added: list[list[Pods]] = [[] for _ in info.pools]
    deepest = 0
    steps = 0
    # Number of steps without backtracking, which are cheaper. Further steps have a
    # lower limit.
    straight = len(fit.engines) * len(info.pools)

    def descend(i: int) -> bool:
        nonlocal charged, deepest, steps
        if i == len(fit.engines):
            return True
        deepest = max(deepest, i)
        for p in choices[i]:
            steps += 1
            if (
                steps > STEPS_MAX
                or (steps > straight and budget.is_spent)
                or budget.is_exhausted
            ):
                return False
            pool = info.pools[p]
            more = pods_on((compiled.place(i, pool.name, pool.device_set),), pool)
            # Packing visits the nodes and all added pods.
            taken = (
                _STEPS_PER_POOL
                + pool.nodes // 4
                + 2 * sum(group.count for group in (*added[p], *more))
            )
            if steps > straight:
                budget.charge(taken)
            else:
                budget.charge_straight(taken)
            if not room.takes(i, p):
                continue
            if charged is None:
                charged = charged_load(overlay, info, owner, without)
            if not admits(overlay, pool, charged.on(pool), [*added[p], *more]):
                continue
            added[p] += more
            room.add(i, p)
            chosen.append(p)
            if descend(i + 1):
                return True
            room.remove(i, p)
            chosen.pop()
            del added[p][len(added[p]) - len(more) :]
        return False

    if descend(0):
        return Trial(tuple(chosen))
    cut = (steps > straight and budget.is_spent) or budget.is_exhausted
    return Trial(
        failed=deepest,
        undecided=cut or steps > STEPS_MAX,
        violation=CUT_SHORT if cut else "",
    )


def with_slots(
    overlay: FleetOverlay,
    info: ClusterInfo,
    engines: tuple[EnginePlacement, ...],
    owner: Owner,
    without: Collection[str] = (),
) -> tuple[EnginePlacement, ...]:
    """Assign slots to new engines on packed pools.

    `without` are uids of replicas that are treated as gone.
    """
    if not any(packs(overlay, pool) for pool in info.pools):
        return engines
    charged = charged_load(overlay, info, owner, without)
    slots: dict[tuple[int, int], tuple[int, ...]] = {}
    for pool in [pool for pool in info.pools if packs(overlay, pool)]:
        keys: list[tuple[int, int]] = []
        for i, engine in enumerate(engines):
            for j, member in enumerate(engine.members):
                if member.pool == pool.name and member.requests:
                    keys.append((i, j))
        added = [
            pods_of(engines[i].members[j], engines[i].copies, pool) for i, j in keys
        ]
        found = charged.on(pool).pack(added)
        slots.update(zip(keys, found or [], strict=False))
    packed = []
    for i, engine in enumerate(engines):
        members = tuple(
            replace(member, slots=slots.get((i, j), member.slots))
            for j, member in enumerate(engine.members)
        )
        packed.append(replace(engine, members=members))
    return tuple(packed)


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """The usability of a pool's free devices, counted in its first claimable entry.

    Attributes:
        largest: devices of the largest pod that is still admitted.
        free: devices that no pod uses.
        unusable: free devices that pods of the largest size cannot use.

    """

    largest: int
    free: int
    unusable: int


def fragmentation(
    overlay: FleetOverlay, info: ClusterInfo
) -> Mapping[str, Fragmentation]:
    """Return the fragmentation of each pool with claimable devices."""
    found = {}
    for pool in info.pools:
        capacity = capacity_of(pool)
        first = next((e for e, count in enumerate(capacity) if count), None)
        if first is None:
            continue
        charged = charged_load(overlay, info, NO_OWNER).on(pool)
        used = sum(group.size[first] * group.count for group in charged.pods())
        free = max(0, capacity[first] * pool.nodes - used)
        largest, unusable = 0, free
        for size in range(capacity[first], 0, -1):
            pod = [0] * len(capacity)
            pod[first] = size
            more = _admitted(overlay, pool, charged, tuple(pod))
            if more:
                largest, unusable = size, free - size * more
                break
        found[pool.name] = Fragmentation(largest, free, unusable)
    return found


def _admitted(
    overlay: FleetOverlay, pool: PoolView, charged: PoolLoad, size: Vector
) -> int:
    """Count how many pods of one size a pool would still admit."""
    low, high = 0, max(1, pool.nodes * max(capacity_of(pool)))
    while low < high:
        middle = (low + high + 1) // 2
        if admits(overlay, pool, charged, [Pods(size, middle)]):
            low = middle
        else:
            high = middle - 1
    return low
