"""In-place updates: whether they fit, and what the replica is charged.

The old pods exist until the new ones have replaced them. So the decision that makes an
update charges the larger of the two on each pool, and does not use the nodes that the
update frees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace

from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.charged_devices import Vector, pods_of, pods_on
from scheduler.hardware.template import charges
from scheduler.model.decision import EnginePlacement, MemberPlacement
from scheduler.model.inputs import DeploymentView, LedgerEntry, PoolView
from scheduler.model.policy import WHOLE_NODES
from scheduler.placement.limits.device_accounting import (
    NO_OWNER,
    accounting_of,
    admits,
    charged_load,
    counts_devices,
    with_slots,
)
from scheduler.placement.limits.quota import QuotaGate
from scheduler.placement.limits.reserved_pools import ReservedPools


def growth_blocked(
    overlay: FleetOverlay,
    deployment: DeploymentView,
    entry: LedgerEntry,
    target: tuple[EnginePlacement, ...],
    quota: QuotaGate,
) -> str:
    """Return why a replica cannot grow in place.

    Args:
        overlay: the fleet, with the replica on one of its clusters.
        deployment: the owner of the replica.
        entry: the replica as it is charged now.
        target: its engines with the current template, on their present pools.
        quota: the quotas of the deployment, at its priority.

    Returns:
        A sentence that names the cluster and the pool or the quota; "" if it can grow
        or does not grow.

    """
    info = overlay.clusters[entry.cluster]
    reserved = ReservedPools(
        overlay, (deployment.namespace, deployment.name), quota.priority
    )
    short = _short_of_devices if counts_devices(overlay) else _short_of_nodes
    return short(overlay, info, entry, target, reserved) or quota.refuses_growth(
        info, entry.engines, target
    )


def _short_of_nodes(
    overlay: FleetOverlay,
    info: ClusterInfo,
    entry: LedgerEntry,
    target: tuple[EnginePlacement, ...],
    reserved: ReservedPools,
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
    overlay: FleetOverlay,
    info: ClusterInfo,
    entry: LedgerEntry,
    target: tuple[EnginePlacement, ...],
    reserved: ReservedPools,
) -> str:
    left_out = reserved.positions(info)
    target = _keeping_slots(entry.engines, target)
    for p, pool in enumerate(info.pools):
        if not _grows(entry.engines, target, pool):
            continue
        # The additional pods do not wait for releasing replicas.
        charged = charged_load(overlay, info, NO_OWNER, {entry.uid}).on(pool)
        if p in left_out or not admits(overlay, pool, charged, pods_on(target, pool)):
            return f"too few free devices on {info.name}/{pool.name}"
    return ""


def update_in_place(
    overlay: FleetOverlay,
    deployment: DeploymentView,
    entry: LedgerEntry,
    target: tuple[EnginePlacement, ...],
) -> LedgerEntry:
    """Charge a replica with the larger of its engines and those of `target`.

    The replica must be able to grow in place.

    Returns:
        The entry after the update; nodes that it gives up are free for the requests
        decided next.

    """
    info = overlay.clusters[entry.cluster]
    if counts_devices(overlay):
        target = with_slots(
            overlay, info, _keeping_slots(entry.engines, target), NO_OWNER, {entry.uid}
        )
    updated = replace(entry, engines=target, template=deployment.template, ready=False)
    larger = at_larger(
        entry.engines,
        target,
        [pool for pool in info.pools if _by_device(overlay, pool)],
    )
    overlay.ledger.put(replace(updated, engines=larger))
    return updated


def at_larger(
    before: tuple[EnginePlacement, ...],
    after: tuple[EnginePlacement, ...],
    by_device: Collection[PoolView] = (),
) -> tuple[EnginePlacement, ...]:
    """Return engines with the larger charge, before or after, on each pool.

    On a pool of whole nodes, that is the version with more nodes. On the pools
    `by_device`, the size of pods matters as well: the comparison is per member, and
    both versions are taken if neither has as many pods of that size.
    """
    held, wanted = charges(before), charges(after)
    counted = {pool.name: pool for pool in by_device}
    smaller = {name for name, nodes in wanted.items() if nodes < held.get(name, 0)} | (
        set(held) - set(wanted)
    )
    if not counted and not smaller:
        return after
    found = [
        *_on_pools(after, set(wanted) - smaller - set(counted)),
        *_on_pools(before, smaller - set(counted)),
    ]
    for old, new in _pairs(before, after):
        pool = counted.get(new[1].pool)
        if pool is not None:
            found += _larger_members(old, new, pool)
    return tuple(found)


def _by_device(overlay: FleetOverlay, pool: PoolView) -> bool:
    return counts_devices(overlay) and accounting_of(overlay, pool) != WHOLE_NODES


def _on_pools(
    engines: tuple[EnginePlacement, ...], pools: Collection[str]
) -> Iterator[EnginePlacement]:
    for engine in engines:
        members = tuple(
            member
            for member in engine.members
            if member.requests and member.pool in pools
        )
        if members:
            yield replace(engine, members=members)


# A member with its engine.
_Placed = tuple[EnginePlacement, MemberPlacement]


def _pairs(
    before: tuple[EnginePlacement, ...], after: tuple[EnginePlacement, ...]
) -> Iterator[tuple[_Placed, _Placed]]:
    """Yield each member before and after the update, on the same pool."""
    known = {engine.engine: engine for engine in before}
    for engine in after:
        old = known[engine.engine]
        for was, member in zip(old.members, engine.members, strict=True):
            yield (old, was), (engine, member)


def _larger_members(
    old: _Placed, new: _Placed, pool: PoolView
) -> list[EnginePlacement]:
    was, becomes = (
        pods_of(member, engine.copies, pool) if member.requests else None
        for engine, member in (old, new)
    )
    parts = [replace(engine, members=(member,)) for engine, member in (old, new)]
    if was is None or becomes is None:
        return [part for part in parts if part.members[0].requests]
    if was.size != becomes.size and (was.slots or becomes.slots):
        return parts
    # One larger pod may replace one smaller pod.
    for larger, smaller, part in ((becomes, was, parts[1]), (was, becomes, parts[0])):
        if larger.count >= smaller.count and all(
            a >= b for a, b in zip(larger.size, smaller.size, strict=True)
        ):
            return [part]
    return parts


def _keeping_slots(
    before: tuple[EnginePlacement, ...], after: tuple[EnginePlacement, ...]
) -> tuple[EnginePlacement, ...]:
    """Keep the pods of an updated replica on their slots if their draw is unchanged."""
    kept: dict[str, list[MemberPlacement]] = {}
    for (_, was), (engine, member) in _pairs(before, after):
        present = member
        if was.draw == member.draw and was.slots:
            count = member.pods * engine.copies
            present = replace(member, slots=was.slots[:count])
        kept.setdefault(engine.engine, []).append(present)
    return tuple(
        replace(engine, members=tuple(kept[engine.engine])) for engine in after
    )


def _grows(
    before: tuple[EnginePlacement, ...],
    after: tuple[EnginePlacement, ...],
    pool: PoolView,
) -> bool:
    """Return whether a pool gets more pods of some size."""
    counts: Counter[tuple[Vector, int]] = Counter()
    for old, new in _pairs(before, after):
        for (engine, member), sign in ((old, -1), (new, 1)):
            if member.pool == pool.name and member.requests:
                pods = pods_of(member, engine.copies, pool)
                counts[pods.size, pods.siblings] += sign * pods.count
    return any(count > 0 for count in counts.values())
