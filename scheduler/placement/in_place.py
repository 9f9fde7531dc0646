"""In-place updates: whether they fit, and what the replica is charged.

The old pods exist until the new ones have replaced them. So the replica is charged the
larger of the two on each pool until it is Ready with its new template. The entry of the
ledger keeps that charge in `held`.
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
        info, entry.charged, target
    )


def _short_of_nodes(
    overlay: FleetOverlay,
    info: ClusterInfo,
    entry: LedgerEntry,
    target: tuple[EnginePlacement, ...],
    reserved: ReservedPools,
) -> str:
    free = reserved.left(info, overlay.free(info))
    held = charges(entry.charged)
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
        if not _grows(entry.charged, target, pool):
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
        The entry after the update. What the old pods hold is free when they are gone.

    """
    info = overlay.clusters[entry.cluster]
    if counts_devices(overlay):
        target = with_slots(
            overlay, info, _keeping_slots(entry.engines, target), NO_OWNER, {entry.uid}
        )
    larger = at_larger(
        entry.charged,
        target,
        [pool for pool in info.pools if _by_device(overlay, pool)],
    )
    held = () if larger is target else larger
    updated = replace(
        entry,
        engines=target,
        template=deployment.template,
        ready=False,
        held=held,
        held_until=deployment.template if held else "",
    )
    overlay.ledger.put(updated)
    return updated


def at_larger(
    before: tuple[EnginePlacement, ...],
    after: tuple[EnginePlacement, ...],
    by_device: Collection[PoolView] = (),
) -> tuple[EnginePlacement, ...]:
    """Return engines with the larger charge, before or after, on each pool.

    On a pool of whole nodes, that is the version with more nodes. On the pools
    `by_device`, the size of pods matters as well: the comparison is per member, and
    each version is taken that no other version covers. `before` may be the result of
    an earlier call.

    Returns:
        `after` itself if it covers `before`.

    """
    held, wanted = charges(before), charges(after)
    counted = {pool.name for pool in by_device}
    smaller = {name for name, nodes in wanted.items() if nodes < held.get(name, 0)} | (
        set(held) - set(wanted)
    )
    old = [*_on_pools(before, smaller - counted)]
    found = [*_on_pools(after, set(wanted) - smaller - counted), *old]
    for pool in by_device:
        new_parts = _parts(after, pool)
        kept = _uncovered(_parts(before, pool), new_parts, pool)
        old += kept
        found += [*kept, *_uncovered(new_parts, kept, pool)]
    return tuple(found) if old else after


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


def _parts(
    engines: tuple[EnginePlacement, ...], pool: PoolView
) -> list[EnginePlacement]:
    """Return one engine for each member with devices of a pool."""
    return [
        replace(engine, members=(member,))
        for engine in _on_pools(engines, {pool.name})
        for member in engine.members
    ]


def _uncovered(
    parts: list[EnginePlacement], others: list[EnginePlacement], pool: PoolView
) -> list[EnginePlacement]:
    """Return the versions of members that none of the others covers."""
    return [
        part
        for part in parts
        if not any(_covers(other, part, pool) for other in others)
    ]


def _covers(part: EnginePlacement, other: EnginePlacement, pool: PoolView) -> bool:
    """Return whether pods of one version of a member may replace pods of another."""
    member, replaced = part.members[0], other.members[0]
    if (part.engine, member.role) != (other.engine, replaced.role):
        return False
    larger, smaller = (
        pods_of(member, part.copies, pool),
        pods_of(replaced, other.copies, pool),
    )
    if larger.size != smaller.size and (larger.slots or smaller.slots):
        return False
    # One larger pod may replace one smaller pod.
    return (
        larger.count >= smaller.count
        and all(a >= b for a, b in zip(larger.size, smaller.size, strict=True))
        and Counter(smaller.slots) <= Counter(larger.slots)
    )


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
    for engines, sign in ((before, -1), (after, 1)):
        for pods in pods_on(engines, pool):
            counts[pods.size, pods.siblings] += sign * pods.count
    return any(count > 0 for count in counts.values())
