"""Who uses the capacity of the fleet, in the unit that the ledger charges.

A pool is charged in nodes, or in devices if its accounting counts devices. The devices
of a pool are those of its first claimable entry, as in `pool_report`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from api_types import labels
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.charged_devices import capacity_of, pods_on
from scheduler.hardware.template import charges
from scheduler.model import reasons
from scheduler.model.inputs import LedgerEntry, PoolView
from scheduler.model.policy import WHOLE_NODES, Quota
from scheduler.placement.limits.device_accounting import accounting_of, fragmentation

NODES, DEVICES = "nodes", "devices"


class PoolCapacityUse(NamedTuple):
    """The capacity of one pool.

    Attributes:
        unit: nodes or devices.
        used: capacity of running replicas.
        held: capacity of replicas that are not started yet, or are being removed.
        free: capacity that new replicas may take; of devices, those that pods of the
            largest size that still fits can take.
        wasted: capacity that no replica has, and that no new replica gets.
        idle_devices: devices of charged nodes that no pod claims; 0 for unit devices.
        why: why nothing is free although capacity is left, or empty.

    """

    cluster: str
    pool: str
    unit: str
    total: int
    used: int
    held: int
    free: int
    wasted: int
    idle_devices: int = 0
    why: str = ""


class NamespaceCapacityUse(NamedTuple):
    """The capacity that the replicas of one namespace have, in one unit."""

    namespace: str
    unit: str
    replicas: int
    used: int
    held: int
    idle_devices: int = 0


class QuotaUse(NamedTuple):
    """The use of one quota by a namespace.

    Attributes:
        pools: the pools that count, in words.
        max_nodes: the limit of nodes; negative for none.
        max_devices: the limit of devices; negative for none.

    """

    namespace: str
    pools: str
    nodes: int
    max_nodes: int
    devices: int
    max_devices: int


def pool_use(fleet: Fleet, now: int) -> list[PoolCapacityUse]:
    """Return the use of every pool, sorted by cluster, pools in published order."""
    overlay = FleetOverlay(fleet, now)
    return [
        use
        for name in sorted(overlay.clusters)
        for use in _of_cluster(overlay, overlay.clusters[name])
    ]


def namespace_use(fleet: Fleet, now: int) -> list[NamespaceCapacityUse]:
    """Return the use by every namespace with replicas, sorted by namespace and unit.

    A replica on pools of both units counts in both rows. Nodes that a new replica takes
    over from a replica that is being removed count once, for the namespace of the
    latter.
    """
    overlay = FleetOverlay(fleet, now)
    found: dict[tuple[str, str], NamespaceCapacityUse] = {}
    for entry in fleet.entries():
        info = overlay.clusters.get(entry.cluster)
        units: set[str] = set()
        for pool in info.pools if info else ():
            unit = _unit(overlay, pool)
            amount = _amount([entry], pool, unit)
            if not amount:
                continue
            key = (entry.namespace, unit)
            seen = found.get(key, NamespaceCapacityUse(*key, 0, 0, 0))
            is_bound = entry.state == reasons.BOUND
            found[key] = seen._replace(
                replicas=seen.replicas + (unit not in units),
                used=seen.used + (amount if is_bound else 0),
                held=seen.held + (0 if is_bound else amount),
                idle_devices=seen.idle_devices + _idle([entry], pool, unit),
            )
            units.add(unit)
    return [found[key] for key in sorted(found)]


def quota_use(fleet: Fleet, now: int) -> list[QuotaUse]:
    """Return the use of every quota, sorted by namespace, in the order of the policy."""
    overlay = FleetOverlay(fleet, now)
    found = []
    for n, quota in enumerate(overlay.options.quotas):
        used = overlay.quota_usage.used(n)
        found.append(
            QuotaUse(
                quota.namespace,
                _pools_of(quota),
                used.nodes,
                quota.max_nodes,
                used.devices,
                quota.max_devices,
            )
        )
    return sorted(found, key=lambda each: each.namespace)


def _pools_of(quota: Quota) -> str:
    labels_text = ", ".join(
        f"{key}={value}" for key, value in sorted(quota.match_labels.items())
    )
    floor = quota.priority_floor
    parts = [
        f"class {quota.class_name}" if quota.class_name else "",
        f"clusters {labels_text}" if labels_text else "",
        f"devices with {quota.device_selector}" if quota.device_selector else "",
        f"priority {floor} or higher" if floor is not None else "",
    ]
    return "; ".join(part for part in parts if part) or "all pools"


def _of_cluster(overlay: FleetOverlay, info: ClusterInfo) -> Iterable[PoolCapacityUse]:
    free, pieces = overlay.free(info), fragmentation(overlay, info)
    charged_nodes = overlay.ledger.used(info.name)
    entries = list(overlay.ledger.on_cluster(info.name).values())
    bound = [entry for entry in entries if entry.state == reasons.BOUND]
    closed = _closed(info)
    for p, pool in enumerate(info.pools):
        unit = _unit(overlay, pool)
        used = _amount(bound, pool, unit)
        if unit == NODES:
            total, charged = pool.nodes, charged_nodes.get(pool.name, 0)
            left = free[p]
        else:
            total = pool.nodes * _devices_per_node(pool)
            charged = _amount(entries, pool, unit)
            piece = pieces[pool.name]
            left = piece.free - piece.unusable
        why = closed or _closed_pool(pool)
        offered = 0 if why else max(0, left)
        wasted = max(0, total - charged - offered)
        yield PoolCapacityUse(
            info.name,
            pool.name,
            unit,
            total,
            used,
            max(0, charged - used),
            offered,
            wasted,
            _idle(entries, pool, unit),
            why if wasted else "",
        )


def _unit(overlay: FleetOverlay, pool: PoolView) -> str:
    counts_nodes = accounting_of(overlay, pool) == WHOLE_NODES
    return NODES if counts_nodes or not _devices_per_node(pool) else DEVICES


def _devices_per_node(pool: PoolView) -> int:
    return next((count for count in capacity_of(pool) if count), 0)


def _amount(entries: Iterable[LedgerEntry], pool: PoolView, unit: str) -> int:
    """Return the nodes or devices of replicas, without those that they take over."""
    if unit == DEVICES:
        return sum(_claimed(entry, pool) for entry in entries)
    return sum(
        charges(entry.charged).get(pool.name, 0) - dict(entry.reuse).get(pool.name, 0)
        for entry in entries
    )


def _claimed(entry: LedgerEntry, pool: PoolView) -> int:
    capacity = capacity_of(pool)
    first = next((e for e, count in enumerate(capacity) if count), None)
    if first is None:
        return 0
    return sum(pods.size[first] * pods.count for pods in pods_on(entry.charged, pool))


def _idle(entries: Iterable[LedgerEntry], pool: PoolView, unit: str) -> int:
    if unit == DEVICES:
        return 0
    return sum(
        charges(entry.charged).get(pool.name, 0) * _devices_per_node(pool)
        - _claimed(entry, pool)
        for entry in entries
    )


def _closed(info: ClusterInfo) -> str:
    """Return why a cluster takes no replicas, or an empty text."""
    view = info.view
    if view.deleting:
        return "the cluster is being deleted"
    if any(taint.key == labels.MAINTENANCE for taint in view.taints):
        return "the cluster is drained or cordoned"
    if not view.ready:
        return "the cluster is not Ready"
    return "" if view.accounted else "the scheduler rebuilds its ledger"


def _closed_pool(pool: PoolView) -> str:
    return pool.unusable or ("its class is deleted" if pool.class_missing else "")
