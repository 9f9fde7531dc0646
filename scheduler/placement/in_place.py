"""An update of a replica where it is: whether it fits, and what the replica is charged with.

The pods of the old template are there until those of the new one have replaced them, so the decision that makes an update charges the
larger of the two on each pool and does not use the nodes that the update frees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.charged_devices import pods_of, pods_on
from scheduler.hardware.template import charges
from scheduler.model.decision import EnginePlacement, MemberPlacement
from scheduler.model.inputs import DeploymentView, LedgerEntry, PoolView
from scheduler.model.policy import WHOLE_NODES
from scheduler.placement.limits.device_accounting import NO_OWNER, accounting_of, admits, charged_load, counts_devices, with_slots
from scheduler.placement.limits.quota import QuotaGate
from scheduler.placement.limits.reserved_pools import ReservedPools


def growth_blocked(
    overlay: FleetOverlay, deployment: DeploymentView, entry: LedgerEntry, target: tuple[EnginePlacement, ...], quota: QuotaGate
) -> str:
    """Say why a replica cannot grow where it is.

    Args:
        overlay: the fleet, with the replica on one of its clusters.
        deployment: what the replica belongs to.
        entry: the replica as it is charged now.
        target: its engines with the current template, on the pools that they are on.
        quota: the quotas of the deployment, at its priority.

    Returns:
        A sentence that names the cluster, and the pool or the quota; "" if nothing blocks it or it does not grow.

    """
    info = overlay.clusters[entry.cluster]
    reserved = ReservedPools(overlay, (deployment.namespace, deployment.name), quota.priority)
    short = _short_of_devices if counts_devices(overlay) else _short_of_nodes
    return short(overlay, info, entry, target, reserved) or quota.refuses_growth(info, entry.engines, target)


def _short_of_nodes(
    overlay: FleetOverlay, info: ClusterInfo, entry: LedgerEntry, target: tuple[EnginePlacement, ...], reserved: ReservedPools
) -> str:
    free = reserved.left(info, overlay.free(info))
    held = charges(entry.engines)
    for pool, nodes in charges(target).items():
        more = nodes - held.get(pool, 0)
        left = free[info.positions[pool]]
        if more > 0 and more > left:
            return f"needs {more} more nodes on {info.name}/{pool}, {max(left, 0)} free"
    return ""


def _short_of_devices(
    overlay: FleetOverlay, info: ClusterInfo, entry: LedgerEntry, target: tuple[EnginePlacement, ...], reserved: ReservedPools
) -> str:
    left_out = reserved.positions(info)
    target = _keeping_slots(entry.engines, target)
    for p, pool in enumerate(info.pools):
        if not _grows(entry.engines, target, pool):
            continue
        # The pods that it grows by wait for no releasing replica.
        charged = charged_load(overlay, info, NO_OWNER, {entry.uid}).on(pool)
        if p in left_out or not admits(overlay, pool, charged, pods_on(target, pool)):
            return f"too few free devices on {info.name}/{pool.name}"
    return ""


def update_in_place(
    overlay: FleetOverlay, deployment: DeploymentView, entry: LedgerEntry, target: tuple[EnginePlacement, ...]
) -> LedgerEntry:
    """Charge a replica, which can grow where it is, with the larger of its engines and those of `target`.

    Returns:
        The entry as it is once the replica is updated: what it gives up is free for the requests decided next.

    """
    info = overlay.clusters[entry.cluster]
    if counts_devices(overlay):
        target = with_slots(overlay, info, _keeping_slots(entry.engines, target), NO_OWNER, {entry.uid})
    updated = replace(entry, engines=target, template=deployment.template, ready=False)
    larger = at_larger(entry.engines, target, [pool for pool in info.pools if _by_device(overlay, pool)])
    overlay.ledger.put(replace(updated, engines=larger))
    return updated


def at_larger(
    before: tuple[EnginePlacement, ...], after: tuple[EnginePlacement, ...], by_device: Collection[PoolView] = ()
) -> tuple[EnginePlacement, ...]:
    """Give engines that take, on each pool, the larger of what a replica takes before and after an update.

    On a pool of whole nodes that is the one of the two that takes more nodes. On the pools `by_device`, where also the size of pods
    matters, it is so for each member, and both are taken where neither has as many pods of that size.
    """
    held, wanted = charges(before), charges(after)
    counted = {pool.name: pool for pool in by_device}
    smaller = {name for name, nodes in wanted.items() if nodes < held.get(name, 0)} | (set(held) - set(wanted))
    if not counted and not smaller:
        return after
    found = [*_on_pools(after, set(wanted) - smaller - set(counted)), *_on_pools(before, smaller - set(counted))]
    for old, new in _pairs(before, after):
        pool = counted.get(new[1].pool)
        if pool is not None:
            found += _larger_members(old, new, pool)
    return tuple(found)


def _by_device(overlay: FleetOverlay, pool: PoolView) -> bool:
    return counts_devices(overlay) and accounting_of(overlay, pool) != WHOLE_NODES


def _on_pools(engines: tuple[EnginePlacement, ...], pools: Collection[str]) -> Iterator[EnginePlacement]:
    for engine in engines:
        members = tuple(member for member in engine.members if member.requests and member.pool in pools)
        if members:
            yield replace(engine, members=members)


# A member with its engine.
_Placed = tuple[EnginePlacement, MemberPlacement]


def _pairs(before: tuple[EnginePlacement, ...], after: tuple[EnginePlacement, ...]) -> Iterator[tuple[_Placed, _Placed]]:
    """Give each member as it was and as it will be, on the same pool."""
    known = {engine.engine: engine for engine in before}
    for engine in after:
        old = known[engine.engine]
        for was, member in zip(old.members, engine.members, strict=True):
            yield (old, was), (engine, member)


def _larger_members(old: _Placed, new: _Placed, pool: PoolView) -> list[EnginePlacement]:
    was, becomes = (pods_of(member, engine.copies, pool) if member.requests else None for engine, member in (old, new))
    parts = [replace(engine, members=(member,)) for engine, member in (old, new)]
    if was is None or becomes is None:
        return [part for part in parts if part.members[0].requests]
    if was.size != becomes.size and (was.slots or becomes.slots):
        return parts
    # In the place of every smaller pod a larger one is counted, or one more.
    for larger, smaller, part in ((becomes, was, parts[1]), (was, becomes, parts[0])):
        if larger.count >= smaller.count and all(a >= b for a, b in zip(larger.size, smaller.size, strict=True)):
            return [part]
    return parts


def _keeping_slots(before: tuple[EnginePlacement, ...], after: tuple[EnginePlacement, ...]) -> tuple[EnginePlacement, ...]:
    """Leave the pods of an updated replica on the slots that they have, as far as they need as much as before."""
    kept: dict[str, list[MemberPlacement]] = {}
    for (_, was), (engine, member) in _pairs(before, after):
        slots = was.slots[: member.pods * engine.copies] if was.draw == member.draw else ()
        kept.setdefault(engine.engine, []).append(replace(member, slots=slots) if slots else member)
    return tuple(replace(engine, members=tuple(kept[engine.engine])) for engine in after)


def _grows(before: tuple[EnginePlacement, ...], after: tuple[EnginePlacement, ...], pool: PoolView) -> bool:
    """Whether a pool gets pods of a size that it has not, or more of one."""
    counts: dict[object, int] = {}
    for (engine, member), sign in ((placed, sign) for pair in _pairs(before, after) for placed, sign in zip(pair, (-1, 1), strict=True)):
        if member.pool == pool.name and member.requests:
            pods = pods_of(member, engine.copies, pool)
            counts[pods.size, pods.siblings] = counts.get((pods.size, pods.siblings), 0) + sign * pods.count
    return any(count > 0 for count in counts.values())
