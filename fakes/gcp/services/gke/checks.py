"""GKE's checks of requests: names, versions, zones, machines, labels and quotas."""

import re
from collections.abc import Iterable

from google.cloud import container_v1

from fakes.gcp.calls.errors import CloudError, invalid, quota_exceeded
from fakes.gcp.services.gke.capacity import (
    ADDRESSES,
    ALL_GPUS,
    MACHINES,
    METRICS,
    VERSIONS,
    region_of,
    zones_of,
)
from fakes.gcp.services.world import World

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_NODE_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_IMAGES = {"", "COS_CONTAINERD", "UBUNTU_CONTAINERD"}


def check_name(name: str) -> None:
    """Refuse a name of a cluster or pool that is too long or has invalid characters."""
    if not _NAME.fullmatch(name):
        raise invalid(
            f'Invalid value for field "name": "{name}" must match {_NAME.pattern}.'
        )


def check_labels(labels: Iterable[tuple[str, str]]) -> None:
    """Refuse invalid resource labels."""
    for key, value in labels:
        if (
            not key
            or not key[0].islower()
            or not _LABEL.fullmatch(key)
            or not _LABEL.fullmatch(value)
        ):
            raise invalid(f'Invalid resource label "{key}": "{value}".')


def version(wanted: str) -> str:
    """Return the version of a version, an alias such as `1.35`, or an empty text.

    Refuse one that is not offered.
    """
    if wanted in {"", "-", "latest"}:
        return VERSIONS[0 if wanted == "latest" else 2]
    found = next(
        (
            each
            for each in VERSIONS
            if each == wanted or each.startswith((f"{wanted}.", f"{wanted}-"))
        ),
        None,
    )
    if found is None:
        raise invalid(f'Master version "{wanted}" is unsupported.')
    return found


def order(text: str) -> tuple[int, ...]:
    """Return a version as numbers that sort."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


_CHANNELS = container_v1.ReleaseChannel.Channel
_UPGRADED_AT_ONCE_MAX = 20
_LEAST_HOURS, _WINDOWS_IN_WEEKS, _WINDOWS_IN_DAYS = 48, 4, 32


def check_pool(
    world: World,
    location: str,
    pool: container_v1.NodePool,
    channel: container_v1.ReleaseChannel,
) -> None:
    """Refuse an invalid pool.

    The checks are of name, zones, machine, accelerators, labels, counts, account and
    upgrades.
    """
    check_name(pool.name)
    check_labels(pool.config.resource_labels.items())
    zones = list(pool.locations) or list(zones_of(location))
    for zone in zones:
        if zone not in zones_of(location):
            raise invalid(f'Invalid location: "{zone}" is not a zone of "{location}".')
        if not world.capacity.offers(zone, pool.config.machine_type or "e2-medium"):
            raise invalid(
                f'Machine type with name "{pool.config.machine_type}" does not '
                f'exist in zone "{zone}".'
            )
    if len(set(zones)) < len(zones):
        raise invalid("A zone is named twice.")
    for key, value in pool.config.labels.items():
        if not _NODE_LABEL_VALUE.fullmatch(value):
            raise invalid(f'Invalid value "{value}" of node label "{key}".')
    if pool.config.image_type.upper() not in _IMAGES:
        raise invalid(f'Unknown image type "{pool.config.image_type}".')
    if pool.config.disk_size_gb and pool.config.disk_size_gb < 10:  # noqa: PLR2004
        raise invalid("Boot disk size must be at least 10 GB.")
    _check_accelerators(pool)
    check_autoscaling(pool.autoscaling)
    _check_account(world, pool.config.service_account)
    check_upgrades(pool.upgrade_settings)
    managed = pool.management
    if channel.channel and managed and not managed.auto_upgrade:
        name = _CHANNELS(channel.channel).name
        raise invalid(
            f"Auto_upgrade cannot be false when release_channel {name} is set."
        )


def _check_account(world: World, email: str) -> None:
    """Refuse an account of the project that does not exist, or that is too new."""
    if email.endswith(f"@{world.project}.iam.gserviceaccount.com"):
        name = f"{world.root}/serviceAccounts/{email}"
        if world.visible(name) is None:
            raise invalid(f'Service account "{email}" does not exist.')


def check_upgrades(settings: container_v1.NodePool.UpgradeSettings) -> None:
    """Refuse upgrades of no node, or of too many nodes, at once."""
    if not settings:
        return
    at_once = settings.max_surge + settings.max_unavailable
    if not 0 < at_once <= _UPGRADED_AT_ONCE_MAX:
        raise invalid(
            "The sum of max_surge and max_unavailable must be between 1 and "
            f"{_UPGRADED_AT_ONCE_MAX}."
        )


def check_maintenance(policy: container_v1.MaintenancePolicy) -> None:
    """Refuse a window that leaves less than 48 hours in 32 days."""
    recurring = policy.window.recurring_window
    if not recurring.recurrence:
        return
    hours = (
        recurring.window.end_time - recurring.window.start_time
    ).total_seconds() / 3600
    _, weekly, days = recurring.recurrence.partition("BYDAY=")
    times = len(days.split(",")) * _WINDOWS_IN_WEEKS if weekly else _WINDOWS_IN_DAYS
    if hours * times < _LEAST_HOURS:
        raise invalid(
            "maintenance policy would go longer than 32d without 48h maintenance "
            "availability"
        )


def _check_accelerators(pool: container_v1.NodePool) -> None:
    machine = MACHINES[pool.config.machine_type or "e2-medium"]
    if pool.config.accelerators and not pool.config.machine_type:
        raise invalid(
            "Cannot use default machine type (e2-medium) with GPUs; choose a different "
            "machine type."
        )
    for accelerator in pool.config.accelerators:
        if accelerator.accelerator_type != machine.gpu:
            raise invalid(
                f'Accelerator type "{accelerator.accelerator_type}" is not '
                f"supported on {pool.config.machine_type}."
            )
        if accelerator.accelerator_count not in machine.gpu_counts:
            raise invalid(
                f"{accelerator.accelerator_count} accelerators of type "
                f'"{machine.gpu}" are not offered.'
            )


def check_autoscaling(autoscaling: container_v1.NodePoolAutoscaling) -> None:
    """Refuse contradictory counts."""
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
        raise invalid(
            "The maximum node count must be at least 1 and not less than the minimum."
        )


def nodes_of(pool: container_v1.NodePool) -> int:
    """Return the number of a pool's nodes in all zones.

    A pool in state ERROR has none.
    """
    if pool.status == container_v1.NodePool.Status.ERROR:
        return 0
    return int(pool.initial_node_count) * len(pool.locations)


def gpus_of(pool: container_v1.NodePool) -> int:
    """Return the number of accelerators of each node of a pool."""
    return sum(
        accelerator.accelerator_count for accelerator in pool.config.accelerators
    )


def pools_of_region(world: World, region: str) -> list[container_v1.NodePool]:
    """Return all pools in a region, or in all regions."""
    pools = [
        each
        for each in world.objects.values()
        if isinstance(each, container_v1.NodePool)
    ]
    return [
        pool for pool in pools if not region or region_of(pool.locations[0]) == region
    ]


def used(world: World, metric: str, region: str) -> int:
    """Return the usage of a regional quota, or of the quota of all GPUs."""
    pools = pools_of_region(world, region)
    if metric == ADDRESSES:
        return sum(nodes_of(pool) for pool in pools)
    counted = [
        pool
        for pool in pools
        if metric == ALL_GPUS or METRICS.get(_gpu(pool)) == metric
    ]
    return sum(nodes_of(pool) * gpus_of(pool) for pool in counted)


def _gpu(pool: container_v1.NodePool) -> str:
    return next(
        (accelerator.accelerator_type for accelerator in pool.config.accelerators), ""
    )


def check_quota(world: World, pool: container_v1.NodePool, nodes: int) -> None:
    """Refuse more nodes of a pool than quotas allow. The refusal names each quota."""
    region = region_of(pool.locations[0])
    wanted = [(ADDRESSES, region, nodes)]
    if gpu := _gpu(pool):
        wanted += [
            (METRICS[gpu], region, nodes * gpus_of(pool)),
            (ALL_GPUS, "", nodes * gpus_of(pool)),
        ]
    short = []
    for metric, place, needed in wanted:
        limit, in_use = world.capacity.limit(metric, place), used(world, metric, place)
        if needed and in_use + needed > limit:
            short.append((metric, needed, limit, in_use))
    if short:
        raise quota_exceeded(world.project, short)


def zones_without_stock(world: World, name: str, more: int = 0) -> list[str]:
    """Return the zones with too few machines for a stored pool and `more` nodes."""
    pool = world.objects[name]
    machine = pool.config.machine_type
    others = [
        each
        for key, each in world.objects.items()
        if isinstance(each, container_v1.NodePool)
        and key != name
        and each.config.machine_type == machine
        and nodes_of(each)
    ]

    def lacks(zone: str) -> bool:
        stock = world.capacity.stock(zone, machine)
        taken = sum(
            int(each.initial_node_count) for each in others if zone in each.locations
        )
        return stock is not None and taken + pool.initial_node_count + more > stock

    return [str(zone) for zone in pool.locations if lacks(zone)]


def spare_failure(world: World, name: str) -> CloudError | None:
    """Return the error of an upgrade for which no zone has one more machine."""
    zones = zones_without_stock(world, name, more=1)
    return stocked_out(world, name, zones) if zones else None


def stocked_out(world: World, name: str, zones: list[str]) -> CloudError:
    """Return the error of an operation on a pool in zones without machines."""
    nodes = int(world.objects[name].initial_node_count)
    cluster, _, pool = name.partition("/clusters/")[2].partition("/nodePools/")
    instance = f"{node_prefix(cluster, pool)}-{world.number():08x}-0000"
    without = " ".join(
        f"The zone '{world.root}/zones/{zone}' does not have enough resources available "
        "to fulfill the request."
        for zone in zones
    )
    return CloudError(
        "RESOURCE_EXHAUSTED",
        f"Google Compute Engine: Not all instances running in IGM after 35m0s. Expected "
        f"{nodes}, running 0, transitioning {nodes}. Current errors: [GCE_STOCKOUT]: "
        f"Instance '{instance}' creation failed: {without}",
    )


_NAMES_MAX = 32


def node_prefix(cluster: str, pool: str) -> str:
    """Return the beginning of the names of a pool's nodes.

    The names of cluster and pool have at most 32 characters together.
    """
    room = _NAMES_MAX - min(len(pool), _NAMES_MAX // 2)
    shown = cluster[: max(room, _NAMES_MAX // 2)]
    return f"gke-{shown}-{pool[: _NAMES_MAX - len(shown)]}"
