"""The use of a cluster's pools according to the ledger."""

from __future__ import annotations

from typing import Any

from scheduler.fleet.fleet import Fleet
from scheduler.fleet.overlay import FleetOverlay
from scheduler.placement.limits.device_accounting import accounting_of, fragmentation


def pool_report(fleet: Fleet, cluster: str, now: int) -> list[dict[str, Any]]:
    """Return a JSON tree per pool, in published order; empty for an unknown cluster.

    `free` is the number of nodes that the next replica may take, computed from
    `declared` and `charged`. `devices` exists for pools with claimable devices: the
    largest pod that is still admitted, the free devices, and the free devices that pods
    of that size cannot use.
    """
    overlay = FleetOverlay(fleet, now)
    info = overlay.clusters.get(cluster)
    if info is None:
        return []
    free, used, pieces = (
        overlay.free(info),
        overlay.ledger.used(info.name),
        fragmentation(overlay, info),
    )
    report = []
    for p, pool in enumerate(info.pools):
        tree: dict[str, Any] = {
            "name": pool.name,
            "accounting": accounting_of(overlay, pool),
            "declared": pool.nodes,
        }
        if pool.shortage:
            tree["shortage"] = pool.shortage
        tree |= {"charged": used.get(pool.name, 0), "free": max(0, free[p])}
        piece = pieces.get(pool.name)
        if piece is not None:
            tree["devices"] = {
                "largest": piece.largest,
                "free": piece.free,
                "unusable": piece.unusable,
            }
        report.append(tree)
    return report
