"""Regions, zones, machine types and quotas of the compute API. No call changes them."""

from typing import Any

from fakes.gcp.calls.errors import not_found
from fakes.gcp.services.compute.collections import Path
from fakes.gcp.services.gke.capacity import (
    ADDRESSES,
    MACHINES,
    METRICS,
    NETWORKS,
    REGIONS,
    zones_of,
)
from fakes.gcp.services.gke.checks import used
from fakes.gcp.services.leftovers import COMPUTE
from fakes.gcp.services.world import World


def project(world: World) -> dict[str, Any]:
    """Return the project with its quotas."""
    quotas = [_quota(world, metric, "") for metric in world.capacity.project_metrics()]
    return {
        "kind": "compute#project",
        "name": world.project,
        "id": "100000000001",
        "quotas": quotas,
    }


def _quota(world: World, metric: str, region: str) -> dict[str, Any]:
    taken = network_count(world) if metric == NETWORKS else used(world, metric, region)
    return {
        "metric": metric,
        "limit": float(world.capacity.limit(metric, region)),
        "usage": float(taken),
    }


def network_count(world: World) -> int:
    """Return the number of networks in the project."""
    return sum(
        name.startswith(f"{world.root}/global/networks/") for name in world.objects
    )


def place(world: World, path: Path) -> dict[str, Any]:
    """Return one region or zone."""
    found = next(
        (each for each in places(world, path.collection) if each["name"] == path.name),
        None,
    )
    if found is None:
        raise not_found(path.full_name)
    return found


def places(world: World, collection: str) -> list[dict[str, Any]]:
    """Return all regions or all zones."""
    root = f"{COMPUTE}/{world.root}"
    if collection == "zones":
        pairs = [(zone, region) for region, zones in REGIONS.items() for zone in zones]
        return [
            {"name": zone, "status": "UP", "region": f"{root}/regions/{region}"}
            for zone, region in pairs
        ]
    metrics = [ADDRESSES, *sorted(METRICS.values())]
    return [
        {
            "name": region,
            "status": "UP",
            "zones": [f"{root}/zones/{zone}" for zone in zones],
            "quotas": [_quota(world, metric, region) for metric in metrics],
            "selfLink": f"{root}/regions/{region}",
        }
        for region, zones in REGIONS.items()
    ]


def hardware(world: World, path: Path) -> list[dict[str, Any]]:
    """Return the machine types or accelerator types of a zone."""
    zone = path.scope.partition("/")[2]
    if not zones_of(zone):
        raise not_found(f"{world.root}/zones/{zone}")
    offered = {
        name: machine
        for name, machine in MACHINES.items()
        if world.capacity.offers(zone, name)
    }
    if path.collection == "acceleratorTypes":
        names = sorted({machine.gpu for machine in offered.values() if machine.gpu})
        return [
            {"name": name, "zone": zone, "maximumCardsPerInstance": 8} for name in names
        ]
    return [
        {
            "name": name,
            "zone": zone,
            "guestCpus": machine.cpus,
            "memoryMb": machine.memory_mib,
            "accelerators": [
                {
                    "guestAcceleratorType": machine.gpu,
                    "guestAcceleratorCount": max(machine.gpu_counts),
                }
            ]
            if machine.gpu and not name.startswith("n1-")
            else [],
        }
        for name, machine in offered.items()
    ]
