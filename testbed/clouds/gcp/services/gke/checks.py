"""What GKE refuses to create: names, versions, zones, machines, labels, and machines beyond a quota."""

import re
from collections.abc import Iterable

from google.cloud import container_v1

from testbed.clouds.gcp.calls.errors import CloudError, invalid, quota_exceeded
from testbed.clouds.gcp.services.gke.capacity import ADDRESSES, ALL_GPUS, MACHINES, METRICS, VERSIONS, region_of, zones_of
from testbed.clouds.gcp.services.world import World

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_NODE_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_IMAGES = {"", "COS_CONTAINERD", "UBUNTU_CONTAINERD"}


def check_name(name: str) -> None:
    """Refuse a name of a cluster or pool that is too long or has other characters."""
    if not _NAME.fullmatch(name):
        raise invalid(f'Invalid value for field "name": "{name}" must match {_NAME.pattern}.')


def check_labels(labels: Iterable[tuple[str, str]]) -> None:
    """Refuse labels of resources that are none."""
    for key, value in labels:
        if not key or not key[0].islower() or not _LABEL.fullmatch(key) or not _LABEL.fullmatch(value):
            raise invalid(f'Invalid resource label "{key}": "{value}".')


def version(wanted: str) -> str:
    """Give the version that a version, an alias such as `1.35`, or nothing stands for. Refuses one that is not offered."""
    if wanted in {"", "-", "latest"}:
        return VERSIONS[0 if wanted == "latest" else 2]
    found = next((each for each in VERSIONS if each == wanted or each.startswith((f"{wanted}.", f"{wanted}-"))), None)
    if found is None:
        raise invalid(f'Master version "{wanted}" is unsupported.')
    return found


def order(text: str) -> tuple[int, ...]:
    """Give a version as numbers that sort."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


def check_pool(world: World, location: str, pool: container_v1.NodePool) -> None:
    """Refuse a pool that cannot be: its name, zones, machine, accelerators, labels, counts."""
    check_name(pool.name)
    check_labels(pool.config.resource_labels.items())
    zones = list(pool.locations) or list(zones_of(location))
    for zone in zones:
        if zone not in zones_of(location):
            raise invalid(f'Invalid location: "{zone}" is not a zone of "{location}".')
        if not world.capacity.offers(zone, pool.config.machine_type or "e2-medium"):
            raise invalid(f'Machine type with name "{pool.config.machine_type}" does not exist in zone "{zone}".')
    if len(set(zones)) < len(zones):
        raise invalid("A zone is named twice.")
    for key, value in pool.config.labels.items():
        if not _NODE_LABEL_VALUE.fullmatch(value):
            raise invalid(f'Invalid value "{value}" of node label "{key}".')
    if pool.config.image_type.upper() not in _IMAGES:
        raise invalid(f'Unknown image type "{pool.config.image_type}".')
    if pool.config.disk_size_gb and pool.config.disk_size_gb < 10:  # noqa: PLR2004  (GKE's own least)
        raise invalid("Boot disk size must be at least 10 GB.")
    _check_accelerators(pool)
    check_autoscaling(pool.autoscaling)


def _check_accelerators(pool: container_v1.NodePool) -> None:
    machine = MACHINES[pool.config.machine_type or "e2-medium"]
    for accelerator in pool.config.accelerators:
        if accelerator.accelerator_type != machine.gpu:
            raise invalid(f'Accelerator type "{accelerator.accelerator_type}" is not supported on {pool.config.machine_type}.')
        if accelerator.accelerator_count not in machine.gpu_counts:
            raise invalid(f'{accelerator.accelerator_count} accelerators of type "{machine.gpu}" are not offered.')


def check_autoscaling(autoscaling: container_v1.NodePoolAutoscaling) -> None:
    """Refuse counts that exclude each other."""
    per_zone = autoscaling.min_node_count or autoscaling.max_node_count
    total = autoscaling.total_min_node_count or autoscaling.total_max_node_count
    if per_zone and total:
        raise invalid("Node counts per zone and in total cannot both be set.")
    if not autoscaling.enabled:
        return
    least, most = autoscaling.min_node_count, autoscaling.max_node_count
    if total:
        least, most = autoscaling.total_min_node_count, autoscaling.total_max_node_count
    if most < 1 or least > most:
        raise invalid("The maximum node count must be at least 1 and not less than the minimum.")


def nodes_of(pool: container_v1.NodePool) -> int:
    """Give how many nodes a pool has: its count in each of its zones. One in state ERROR has none."""
    if pool.status == container_v1.NodePool.Status.ERROR:
        return 0
    return int(pool.initial_node_count) * len(pool.locations)


def gpus_of(pool: container_v1.NodePool) -> int:
    """Give how many accelerators each node of a pool has."""
    return sum(accelerator.accelerator_count for accelerator in pool.config.accelerators)


def pools_of_region(world: World, region: str) -> list[container_v1.NodePool]:
    """Give all pools in a region; without one, in all."""
    pools = [each for each in world.objects.values() if isinstance(each, container_v1.NodePool)]
    return [pool for pool in pools if not region or region_of(pool.locations[0]) == region]


def used(world: World, metric: str, region: str) -> int:
    """Give how much of a regional quota, or of that for all GPUs, is in use."""
    pools = pools_of_region(world, region)
    if metric == ADDRESSES:
        return sum(nodes_of(pool) for pool in pools)
    counted = [pool for pool in pools if metric == ALL_GPUS or METRICS.get(_gpu(pool)) == metric]
    return sum(nodes_of(pool) * gpus_of(pool) for pool in counted)


def _gpu(pool: container_v1.NodePool) -> str:
    return next((accelerator.accelerator_type for accelerator in pool.config.accelerators), "")


def check_quota(world: World, pool: container_v1.NodePool, nodes: int) -> None:
    """Refuse so many more nodes of a pool than a quota allows."""
    region = region_of(pool.locations[0])
    wanted = [(ADDRESSES, region, nodes)]
    if gpu := _gpu(pool):
        wanted += [(METRICS[gpu], region, nodes * gpus_of(pool)), (ALL_GPUS, "", nodes * gpus_of(pool))]
    for metric, place, needed in wanted:
        limit, in_use = world.capacity.limit(metric, place), used(world, metric, place)
        if needed and in_use + needed > limit:
            raise quota_exceeded(metric, needed, limit, in_use)


def stock_out(world: World, pool: container_v1.NodePool, name: str) -> str | None:
    """Give the first zone that has too few machines for a pool that is stored under `name` already."""
    for zone in pool.locations:
        stock = world.capacity.stock(zone, pool.config.machine_type)
        others = [
            each
            for key, each in world.objects.items()
            if isinstance(each, container_v1.NodePool) and key != name and each.config.machine_type == pool.config.machine_type
        ]
        taken = sum(int(each.initial_node_count) for each in others if zone in each.locations and nodes_of(each))
        if stock is not None and taken + pool.initial_node_count > stock:
            return str(zone)
    return None


def stocked_out(zone: str, machine: str) -> CloudError:
    """Give the error of an operation for which a zone has no machines."""
    text = f"The zone 'projects/p/zones/{zone}' does not have enough resources available to fulfill the request"
    return CloudError("RESOURCE_EXHAUSTED", f"ZONE_RESOURCE_POOL_EXHAUSTED: {text} for {machine}.", reason="GCE_STOCKOUT")
