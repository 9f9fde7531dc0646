"""Counting devices instead of whole nodes.

A pod takes a vector of devices from one node. Which node that is, the cluster's own scheduler decides, so two ways of counting are offered:

* safe: a pod is admitted only if, whatever nodes the scheduler picks and in whatever order all pods come back after a restart, none is
  ever left without a node. For one kind of device with D per node, a pod of size s is refused by a node that already carries T or more,
  T being the smallest multiple of the greatest common divisor of all sizes that exceeds D - s; so at most (U - s) // T nodes can block it,
  U being the devices in use, and that must be less than the number of nodes. Each kind of device can block nodes: the sum must be less.
* packed: pods get node slots here, the tightest that fits, and the placement records it. Only where the cluster is known to follow slots.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.charged_devices import ClusterLoad, Pods, PoolLoad, Vector, capacity_of, pods_of, pods_on
from scheduler.hardware.node_fitting import CUT_SHORT, NO_RULES, STEPS_MAX, FitRules, PoolOrder, Room, SearchBudget, Trial
from scheduler.hardware.template import CompiledTemplate
from scheduler.model.decision import EnginePlacement
from scheduler.model.identity import Owner
from scheduler.model.inputs import PoolView
from scheduler.model.policy import DEVICE_PACKED, DEVICE_SAFE, WHOLE_NODES

# For what uses no devices of releasing replicas.
NO_OWNER: Owner = ("", "")
# A step here packs pods on the nodes of a pool; in steps of the search that counts nodes alone.
_STEPS_PER_POOL = 30


def counts_devices(overlay: FleetOverlay) -> bool:
    """Whether devices are counted instead of whole nodes, on some pools at least."""
    return overlay.rules.count_devices


def accounting_of(overlay: FleetOverlay, pool: PoolView) -> str:
    """Give how a pool is counted; without proof that clusters follow slots, packing is safe counting instead."""
    chosen = overlay.options.class_accounting.get(pool.class_name, overlay.options.accounting)
    return DEVICE_SAFE if chosen == DEVICE_PACKED and not overlay.options.packed_enforced else chosen


def packs(overlay: FleetOverlay, pool: PoolView) -> bool:
    """Whether pods on a pool get slots."""
    return overlay.rules.count_devices and accounting_of(overlay, pool) == DEVICE_PACKED


def charged_load(overlay: FleetOverlay, info: ClusterInfo, owner: Owner, without: Collection[str] = ()) -> ClusterLoad:
    """Return the load of a cluster without the owner's releasing replicas. Callers must not change it.

    `without` are uids of replicas that are treated as gone.
    """
    ledger = overlay.ledger
    beside = overlay.loads_beside(owner) if ledger.releasing(*owner, info.name) else None
    load = beside.on(info.name, info.pools) if beside else ledger.load(info.name, info.pools)
    gone = [entry for uid in without if (entry := ledger.get(uid)) is not None and entry.cluster == info.name]
    gone = [entry for entry in gone if not (beside and beside.leaves(entry))]
    if gone:
        load = load.copy()
        for entry in gone:
            load.charge(entry, -1)
    return load


def is_safe(capacity: Vector, nodes: int, pods: Sequence[Pods]) -> bool:
    """Whether every one of these pods finds a node, whatever nodes the others were given."""
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
                # What its siblings take is on the nodes that they block already.
                blocked += (total[e] - size[e] * (1 + siblings)) // least
        if blocked >= nodes:
            return False
    return True


def admits(overlay: FleetOverlay, pool: PoolView, charged: PoolLoad, added: Sequence[Pods]) -> bool:
    """Whether a pool takes more pods beside those charged to it."""
    if accounting_of(overlay, pool) == WHOLE_NODES:
        # A pod takes its node whole, whatever it claims there.
        return charged.count + sum(group.count for group in added) <= pool.nodes
    if packs(overlay, pool) and not charged.without_slot:
        return charged.pack(added) is not None
    return is_safe(charged.capacity, pool.nodes, [*charged.pods(), *added])


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
    """Find a pool for every engine by counting devices; engines in order, then any arrangement.

    Args:
        overlay: the fleet.
        compiled: the engines.
        info: the cluster.
        owner: whose releasing replicas hold devices that these engines may use.
        rules: what an arrangement has to respect besides.
        budget: of the decision; once it is spent the engines are only tried in order.
        order: gives the pools of an engine in the order in which they are tried; published order without it.
        without: uids of replicas that are treated as gone.

    """
    fit = compiled.on(info.layout)
    charged: ClusterLoad | None = None
    choices = [engine.positions if order is None else order(i, engine.positions) for i, engine in enumerate(fit.engines)]
    room = Room(rules)
    chosen: list[int] = []
    added: list[list[Pods]] = [[] for _ in info.pools]
    deepest = 0
    steps = 0
    # So many are taken without going back; what is searched beyond them is limited more.
    straight = len(fit.engines) * len(info.pools)

    def descend(i: int) -> bool:
        nonlocal charged, deepest, steps
        if i == len(fit.engines):
            return True
        deepest = max(deepest, i)
        for p in choices[i]:
            steps += 1
            if steps > STEPS_MAX or (steps > straight and budget.is_spent) or budget.is_exhausted:
                return False
            pool = info.pools[p]
            more = pods_on((compiled.place(i, pool.name, pool.device_set),), pool)
            # Packing goes through the nodes, and through all pods that are added.
            taken = _STEPS_PER_POOL + pool.nodes // 4 + 2 * sum(group.count for group in (*added[p], *more))
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
    return Trial(failed=deepest, undecided=cut or steps > STEPS_MAX, violation=CUT_SHORT if cut else "")


def with_slots(
    overlay: FleetOverlay, info: ClusterInfo, engines: tuple[EnginePlacement, ...], owner: Owner, without: Collection[str] = ()
) -> tuple[EnginePlacement, ...]:
    """Give new engines slots where pods are packed; `without` are uids of replicas that are treated as gone."""
    if not any(packs(overlay, pool) for pool in info.pools):
        return engines
    charged = charged_load(overlay, info, owner, without)
    slots: dict[tuple[int, int], tuple[int, ...]] = {}
    for pool in [pool for pool in info.pools if packs(overlay, pool)]:
        keys = [(i, j) for i, e in enumerate(engines) for j, m in enumerate(e.members) if m.pool == pool.name and m.requests]
        added = [pods_of(engines[i].members[j], engines[i].copies, pool) for i, j in keys]
        found = charged.on(pool).pack(added)
        slots.update(zip(keys, found or [], strict=False))
    return tuple(
        replace(engine, members=tuple(replace(m, slots=slots.get((i, j), m.slots)) for j, m in enumerate(engine.members)))
        for i, engine in enumerate(engines)
    )


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """How usable the free devices of a pool are, counted in its first claimable entry.

    Attributes:
        largest: devices of the largest pod that is still admitted.
        free: devices that no pod has.
        unusable: those of them that stay free when pods of the largest size have taken all they can.

    """

    largest: int
    free: int
    unusable: int


def fragmentation(overlay: FleetOverlay, info: ClusterInfo) -> Mapping[str, Fragmentation]:
    """Report each pool of a cluster that has claimable devices."""
    found = {}
    for pool in info.pools:
        capacity = capacity_of(pool)
        first = next((e for e, count in enumerate(capacity) if count), None)
        if first is None:
            continue
        charged = charged_load(overlay, info, NO_OWNER).on(pool)
        free = max(0, capacity[first] * pool.nodes - sum(group.size[first] * group.count for group in charged.pods()))
        largest, unusable = 0, free
        for size in range(capacity[first], 0, -1):
            more = _admitted(overlay, pool, charged, tuple(size if e == first else 0 for e in range(len(capacity))))
            if more:
                largest, unusable = size, free - size * more
                break
        found[pool.name] = Fragmentation(largest, free, unusable)
    return found


def _admitted(overlay: FleetOverlay, pool: PoolView, charged: PoolLoad, size: Vector) -> int:
    """Count the pods of one size that a pool would still admit."""
    low, high = 0, max(1, pool.nodes * max(capacity_of(pool)))
    while low < high:
        middle = (low + high + 1) // 2
        if admits(overlay, pool, charged, [Pods(size, middle)]):
            low = middle
        else:
            high = middle - 1
    return low
