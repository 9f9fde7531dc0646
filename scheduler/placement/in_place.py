"""An update of a replica where it is: whether it fits, and what the replica is charged with.

The pods of the old template are there until those of the new one have replaced them, so the decision that makes an update charges the
larger of the two and does not use the nodes that the update frees.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.template import charges, placed_nodes
from scheduler.model.decision import EnginePlacement
from scheduler.model.inputs import DeploymentView, LedgerEntry
from scheduler.placement.limits.device_accounting import counts_devices, resize_fits
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
    owner = (deployment.namespace, deployment.name)
    if counts_devices(overlay):
        fits = resize_fits(overlay, info, target, owner, {entry.uid})
        return "" if fits else f"too few free devices on {info.name}"
    free = ReservedPools(overlay, owner, quota.priority).left(info, overlay.free(info))
    held = charges(entry.engines)
    for pool, nodes in charges(target).items():
        more = nodes - held.get(pool, 0)
        left = free[info.positions[pool]]
        if more > 0 and more > left:
            return f"needs {more} more nodes on {info.name}/{pool}, {max(left, 0)} free"
    return quota.refuses_growth(info, entry.engines, target)


def updated_entry(entry: LedgerEntry, engines: tuple[EnginePlacement, ...], deployment: DeploymentView) -> LedgerEntry:
    """Give the ledger entry of a replica that is updated to the current template."""
    return replace(entry, engines=engines, template=deployment.template, ready=False)


def at_larger(before: tuple[EnginePlacement, ...], after: tuple[EnginePlacement, ...]) -> tuple[EnginePlacement, ...]:
    """Give each engine at the larger of two placements: its pods are there until the smaller ones have replaced them."""
    known = {engine.engine: engine for engine in before}
    return tuple(
        max(known.get(engine.engine, engine), engine, key=lambda placed: sum(nodes for _, nodes in placed_nodes(placed)))
        for engine in after
    )
