"""Node pools of GKE. Their operations lock their cluster."""

from google.cloud import container_v1

from fakes.gcp.calls.errors import (
    CloudError,
    already_exists,
    invalid,
    not_found,
)
from fakes.gcp.calls.faults import (
    GcpFault,
    OperationFails,
    StockOut,
    TerminalState,
)
from fakes.gcp.calls.script import first_of
from fakes.gcp.services.gke import checks
from fakes.gcp.services.gke.capacity import zones_of
from fakes.gcp.services.gke.operations import begin, check_free, link
from fakes.gcp.services.world import World

_STATUS = container_v1.NodePool.Status
_CANONICAL = {
    "GCE_STOCKOUT": "RESOURCE_EXHAUSTED",
    "GCE_QUOTA_EXCEEDED": "RESOURCE_EXHAUSTED",
}


def cluster_name(pool: str) -> str:
    """Return the full name of a pool's cluster."""
    return pool.partition("/nodePools/")[0]


def ready_cluster(world: World, name: str, new_pool: str = "") -> container_v1.Cluster:
    """Return a cluster that can be changed, or that can get a new pool.

    Refuse a cluster that is missing, locked by an operation, or broken.
    """
    found = world.objects.get(name)
    if found is None:
        raise not_found(name)
    check_free(world, new_pool or name)
    if found.status == container_v1.Cluster.Status.ERROR:
        raise CloudError("FAILED_PRECONDITION", f"Cluster {name} is in state ERROR.")
    return found


def store(world: World, cluster: str, pool: container_v1.NodePool, version: str) -> str:
    """Add a new pool to its cluster. Return its full name."""
    location = cluster.split("/")[3]
    name = f"{cluster}/nodePools/{pool.name}"
    stored = container_v1.NodePool(pool)
    if not stored.locations:
        stored.locations = list(world.objects[cluster].locations) or list(
            zones_of(location)
        )
    stored.version = stored.version or version
    stored.config.machine_type = stored.config.machine_type or "e2-medium"
    stored.config.disk_size_gb = stored.config.disk_size_gb or 100
    stored.config.image_type = stored.config.image_type or "COS_CONTAINERD"
    if not stored.upgrade_settings:
        stored.upgrade_settings = container_v1.NodePool.UpgradeSettings(
            strategy="SURGE", max_surge=1
        )
    stored.status = _STATUS.PROVISIONING
    stored.self_link = link(world, name)
    world.objects[name] = stored
    world.first_sizes[name] = int(stored.initial_node_count)
    return name


def outcome(world: World, name: str, met: list[GcpFault]) -> CloudError | None:
    """End the creation of a pool. Return the error of its operation, if it failed."""
    pool = world.objects.get(name)
    if pool is None:
        return CloudError("NOT_FOUND", f"Not found: {name}.")
    if terminal := first_of(met, TerminalState):
        break_down(pool, terminal.condition, terminal.message)
        return CloudError("INTERNAL", terminal.message)
    if planted := first_of(met, StockOut):
        error = checks.stocked_out(world, name, [planted.zone or pool.locations[0]])
        break_down(pool, "GCE_STOCKOUT", error.message)
        return error
    if zones := checks.zones_without_stock(world, name):
        error = checks.stocked_out(world, name, zones)
        break_down(pool, "GCE_STOCKOUT", error.message)
        world.waiting_for_stock.add(name)
        if len(zones) < len(pool.locations):
            # The nodes in the other zones work, and the operation is no failure.
            pool.status = _STATUS.RUNNING_WITH_ERROR
            return None
        return error
    if fails := first_of(met, OperationFails):
        error = fails.error()
        if fails.effect:
            pool.status = _STATUS.RUNNING
        else:
            break_down(pool, "UNKNOWN", fails.message)
        return error
    pool.status = _STATUS.RUNNING
    return None


def heal(world: World, name: str) -> None:
    """Start the machines of a waiting pool if its zones have capacity now."""
    pool = world.objects.get(name)
    if (
        pool is None
        or name not in world.waiting_for_stock
        or pool.status not in {_STATUS.ERROR, _STATUS.RUNNING_WITH_ERROR}
        or checks.zones_without_stock(world, name)
    ):
        return
    world.waiting_for_stock.discard(name)
    pool.status, pool.status_message, pool.conditions = _STATUS.RUNNING, "", []


def break_down(
    broken: container_v1.NodePool | container_v1.Cluster, condition: str, message: str
) -> None:
    """Put a pool or cluster into state ERROR."""
    broken.status = type(broken).Status.ERROR
    broken.status_message = message
    broken.conditions = [
        container_v1.StatusCondition(
            code=condition,
            canonical_code=_CANONICAL.get(condition, "UNKNOWN"),
            message=message,
        )
    ]


def create_node_pool(
    world: World, request: container_v1.CreateNodePoolRequest
) -> container_v1.Operation:
    """Start to create a pool."""
    pool = request.node_pool
    name = f"{request.parent}/nodePools/{pool.name}"
    cluster = ready_cluster(world, request.parent, name)
    checks.check_pool(
        world, request.parent.split("/")[3], pool, cluster.release_channel
    )
    if name in world.objects:
        raise already_exists(name)
    if pool.initial_node_count < 0:
        raise invalid("initial_node_count must not be negative.")
    counted = container_v1.NodePool(pool)
    counted.locations = list(pool.locations) or list(cluster.locations)
    checks.check_quota(
        world, counted, int(pool.initial_node_count) * len(counted.locations)
    )
    store(world, request.parent, pool, cluster.current_master_version)
    met = world.met
    return begin(world, "CREATE_NODE_POOL", name, lambda: outcome(world, name, met))


def get_node_pool(
    world: World, request: container_v1.GetNodePoolRequest
) -> container_v1.NodePool:
    """Return a pool. This advances its operation."""
    world.operations.advance(request.name)
    found = world.visible(request.name)
    if found is None:
        raise not_found(request.name)
    return shown(world, request.name)


def shown(world: World, name: str) -> container_v1.NodePool:
    """Return the present state of a pool as a read sees it."""
    heal(world, name)
    answer = container_v1.NodePool(world.objects[name])
    if world.shows_first_sizes:
        answer.initial_node_count = world.first_sizes.get(
            name, answer.initial_node_count
        )
    running = world.operations.running_on(name)
    if running is not None and running.kind not in {
        "CREATE_NODE_POOL",
        "DELETE_NODE_POOL",
    }:
        answer.status = _STATUS.RECONCILING
    return answer


def list_node_pools(
    world: World, request: container_v1.ListNodePoolsRequest
) -> container_v1.ListNodePoolsResponse:
    """Return the pools of a cluster."""
    if world.visible(request.parent) is None:
        raise not_found(request.parent)
    world.operations.advance(request.parent)
    names = world.below(f"{request.parent}/nodePools/")
    return container_v1.ListNodePoolsResponse(
        node_pools=[shown(world, name) for name in names]
    )


def delete_node_pool(
    world: World, request: container_v1.DeleteNodePoolRequest
) -> container_v1.Operation:
    """Start to delete a pool."""
    pool = _changeable(world, request.name, broken=True)
    pool.status = _STATUS.STOPPING
    fails = first_of(world.met, OperationFails)

    def finish() -> CloudError | None:
        if fails and not fails.effect:
            break_down(pool, "UNKNOWN", fails.message)
        else:
            world.remove(request.name)
        return fails.error() if fails else None

    return begin(world, "DELETE_NODE_POOL", request.name, finish)


def _changeable(
    world: World, name: str, *, broken: bool = False
) -> container_v1.NodePool:
    cluster = cluster_name(name)
    if cluster not in world.objects:
        raise not_found(cluster)
    check_free(world, name)
    found = world.objects.get(name)
    if found is None:
        raise not_found(name)
    if found.status == _STATUS.ERROR and not broken:
        raise CloudError("FAILED_PRECONDITION", f"Node pool {name} is in state ERROR.")
    return found


def _change(
    world: World,
    name: str,
    kind: str,
    changed: container_v1.NodePool,
    failure: CloudError | None = None,
) -> container_v1.Operation:
    """Start an operation that ends with the given pool, or with a failure."""
    fails = first_of(world.met, OperationFails)

    def finish() -> CloudError | None:
        if failure is not None:
            return failure
        if (fails is None or fails.effect) and name in world.objects:
            world.objects[name] = changed
        return fails.error() if fails else None

    return begin(world, kind, name, finish)


def set_node_pool_size(
    world: World, request: container_v1.SetNodePoolSizeRequest
) -> container_v1.Operation:
    """Start to change the number of nodes per zone."""
    pool = _changeable(world, request.name)
    changed = container_v1.NodePool(pool)
    changed.initial_node_count = request.node_count
    checks.check_quota(
        world, pool, max(0, checks.nodes_of(changed) - checks.nodes_of(pool))
    )
    return _change(world, request.name, "SET_NODE_POOL_SIZE", changed)


def set_node_pool_autoscaling(
    world: World, request: container_v1.SetNodePoolAutoscalingRequest
) -> container_v1.Operation:
    """Start to change the bounds of autoscaling.

    The number of nodes moves into them.
    """
    changed = container_v1.NodePool(_changeable(world, request.name))
    checks.check_autoscaling(request.autoscaling)
    changed.autoscaling = request.autoscaling
    if request.autoscaling.enabled and request.autoscaling.max_node_count:
        bounded = max(
            int(changed.initial_node_count), int(request.autoscaling.min_node_count)
        )
        changed.initial_node_count = min(
            bounded, int(request.autoscaling.max_node_count)
        )
    return _change(world, request.name, "UPDATE_CLUSTER", changed)


def set_node_pool_management(
    world: World, request: container_v1.SetNodePoolManagementRequest
) -> container_v1.Operation:
    """Start to change automatic upgrade and repair. A release channel requires both."""
    changed = container_v1.NodePool(_changeable(world, request.name))
    if not (request.management.auto_upgrade and request.management.auto_repair):
        raise invalid(
            "Auto-upgrade and auto-repair cannot be disabled when a release channel is set."
        )
    changed.management = request.management
    return _change(world, request.name, "SET_NODE_POOL_MANAGEMENT", changed)


def update_node_pool(
    world: World, request: container_v1.UpdateNodePoolRequest
) -> container_v1.Operation:
    """Start to change version, zones, labels, taints, machine or disk.

    Labels and taints are replaced as a whole.
    """
    changed = container_v1.NodePool(_changeable(world, request.name))
    cluster = world.objects[cluster_name(request.name)]
    kind = "UPDATE_CLUSTER"
    if request.node_version:
        wanted = (
            cluster.current_master_version
            if request.node_version == "-"
            else checks.version(request.node_version)
        )
        if checks.order(wanted) > checks.order(cluster.current_master_version):
            raise invalid(
                f'Node version "{wanted}" must not have a greater minor version than '
                f'master version "{cluster.current_master_version}".'
            )
        changed.version, kind = wanted, "UPGRADE_NODES"
    if request.locations:
        changed.locations = list(request.locations)
    if "labels" in request:
        changed.config.labels = dict(request.labels.labels)
    if "taints" in request:
        changed.config.taints = list(request.taints.taints)
    if "resource_labels" in request:
        changed.config.resource_labels = dict(request.resource_labels.labels)
    if request.machine_type:
        changed.config.machine_type = request.machine_type
    if request.disk_size_gb:
        changed.config.disk_size_gb = request.disk_size_gb
    if request.accelerators:
        changed.config.accelerators = list(request.accelerators)
    if "upgrade_settings" in request:
        changed.upgrade_settings = request.upgrade_settings
    checks.check_pool(
        world, request.name.split("/")[3], changed, cluster.release_channel
    )
    more = checks.nodes_of(changed) - checks.nodes_of(world.objects[request.name])
    checks.check_quota(world, changed, max(0, more))
    if kind == "UPGRADE_NODES" and needs_spare(changed):
        return _change(
            world,
            request.name,
            kind,
            changed,
            checks.spare_failure(world, request.name),
        )
    return _change(world, request.name, kind, changed)


def needs_spare(pool: container_v1.NodePool) -> bool:
    """Return whether an upgrade creates a machine before it drains one."""
    settings = pool.upgrade_settings
    return bool(settings.max_surge) and not settings.max_unavailable
