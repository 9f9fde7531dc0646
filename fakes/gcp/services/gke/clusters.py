"""Clusters of GKE."""

from hashlib import sha256

from google.cloud import container_v1

from fakes.gcp.calls.errors import (
    CloudError,
    already_exists,
    invalid,
    not_found,
)
from fakes.gcp.calls.faults import (
    GcpFault,
    HalfDeleted,
    Leak,
    OperationFails,
    TerminalState,
)
from fakes.gcp.calls.script import first_of
from fakes.gcp.services import leftovers
from fakes.gcp.services.gke import checks, node_pools
from fakes.gcp.services.gke.capacity import VERSIONS, zones_of
from fakes.gcp.services.gke.operations import begin, check_free, link
from fakes.gcp.services.world import World

_STATUS = container_v1.Cluster.Status
_DEFAULT_POOL = "default-pool"


def create_cluster(
    world: World, request: container_v1.CreateClusterRequest
) -> container_v1.Operation:
    """Start to create a cluster with its pools, or with a default pool."""
    cluster, location = request.cluster, request.parent.rpartition("/")[2]
    name = f"{request.parent}/clusters/{cluster.name}"
    if not zones_of(location):
        raise invalid(f'Location "{location}" does not exist.')
    checks.check_name(cluster.name)
    checks.check_labels(cluster.resource_labels.items())
    if name in world.objects:
        raise already_exists(name)
    version = checks.version(cluster.initial_cluster_version)
    _check_network(world, cluster, location)
    checks.check_maintenance(cluster.maintenance_policy)
    if cluster.node_pools and cluster.initial_node_count:
        raise invalid(
            "Only one of cluster.initial_node_count and cluster.node_pools can be set."
        )
    pools = list(cluster.node_pools) or [_default_pool(cluster)]
    for pool in pools:
        checks.check_pool(world, location, pool, cluster.release_channel)
        counted = container_v1.NodePool(pool)
        counted.locations = list(pool.locations) or list(zones_of(location)[:3])
        checks.check_quota(
            world, counted, int(pool.initial_node_count) * len(counted.locations)
        )
    world.objects[name] = _stored(world, name, cluster, version)
    names = [node_pools.store(world, name, pool, version) for pool in pools]
    met = world.met
    return begin(
        world, "CREATE_CLUSTER", name, lambda: _created(world, name, names, met)
    )


def _default_pool(cluster: container_v1.Cluster) -> container_v1.NodePool:
    if cluster.initial_node_count < 1:
        raise invalid("Cluster.initial_node_count must be greater than zero.")
    return container_v1.NodePool(
        name=_DEFAULT_POOL, initial_node_count=cluster.initial_node_count
    )


def _check_network(world: World, cluster: container_v1.Cluster, location: str) -> None:
    network = f"{world.root}/global/networks/{cluster.network.rpartition('/')[2] or 'default'}"
    if network not in world.objects:
        raise invalid(f'Network "{cluster.network}" does not exist.')
    region = location if location.count("-") == 1 else location.rpartition("-")[0]
    subnet = world.objects.get(
        f"{world.root}/regions/{region}/subnetworks/{cluster.subnetwork.rpartition('/')[2]}"
    )
    if subnet is None or not subnet["network"].endswith(network):
        path = f"{world.root}/regions/{region}/subnetworks/{cluster.subnetwork}"
        raise invalid(
            f'Subnetwork "{path}" is not valid for Network "{cluster.network}".'
        )
    ranges = {each["rangeName"] for each in subnet.get("secondaryIpRanges", [])}
    policy = cluster.ip_allocation_policy
    for wanted in (
        policy.cluster_secondary_range_name,
        policy.services_secondary_range_name,
    ):
        if wanted and wanted not in ranges:
            raise invalid(
                f'Subnetwork "{cluster.subnetwork}" has no secondary range "{wanted}".'
            )


def _stored(
    world: World, name: str, cluster: container_v1.Cluster, version: str
) -> container_v1.Cluster:
    location = name.split("/")[3]
    stored = container_v1.Cluster(cluster)
    stored.node_pools = []
    stored.initial_node_count = 0
    stored.locations = list(cluster.locations) or list(zones_of(location)[:3])
    stored.location = stored.zone = location
    stored.self_link = link(world, name)
    stored.id = f"{world.number():064x}"
    stored.label_fingerprint = _fingerprint(stored)
    stored.maintenance_policy.resource_version = _version_of(stored)
    stored.initial_cluster_version = stored.current_master_version = (
        stored.current_node_version
    ) = version
    stored.network = cluster.network.rpartition("/")[2]
    stored.subnetwork = cluster.subnetwork.rpartition("/")[2]
    stored.create_time = world.now().isoformat(timespec="seconds")
    stored.status = _STATUS.PROVISIONING
    return stored


def _fingerprint(cluster: container_v1.Cluster) -> str:
    return sha256(repr(sorted(cluster.resource_labels.items())).encode()).hexdigest()[
        :8
    ]


def _version_of(cluster: container_v1.Cluster) -> str:
    """Return the version of a maintenance policy, which its content determines."""
    window = cluster.maintenance_policy.window
    text = container_v1.MaintenanceWindow.to_json(window, sort_keys=True)
    return sha256(text.encode()).hexdigest()[:8]


def set_maintenance_policy(
    world: World, request: container_v1.SetMaintenancePolicyRequest
) -> container_v1.Operation:
    """Start to replace the maintenance policy. Its version must be the last one."""
    cluster = node_pools.ready_cluster(world, request.name)
    policy = request.maintenance_policy
    checks.check_maintenance(policy)
    if policy.resource_version != cluster.maintenance_policy.resource_version:
        raise CloudError(
            "FAILED_PRECONDITION",
            "The resource version of the maintenance policy does not match.",
        )
    changed = container_v1.Cluster(cluster)
    changed.maintenance_policy = policy
    changed.maintenance_policy.resource_version = _version_of(changed)
    return _change(world, request.name, "SET_MAINTENANCE_POLICY", changed)


def _created(
    world: World, name: str, pools: list[str], met: list[GcpFault]
) -> CloudError | None:
    cluster = world.objects.get(name)
    if cluster is None:
        return CloudError("NOT_FOUND", f"Not found: {name}.")
    if terminal := first_of(met, TerminalState):
        node_pools.break_down(cluster, terminal.condition, terminal.message)
        return CloudError("INTERNAL", terminal.message)
    # Faults of the call are the cluster's. A pool in it can still meet an empty stock.
    errors = [error for pool in pools if (error := node_pools.outcome(world, pool, []))]
    fails = first_of(met, OperationFails)
    statuses = {world.objects[pool].status for pool in pools if pool in world.objects}
    if not errors and container_v1.NodePool.Status.RUNNING_WITH_ERROR in statuses:
        # The system pool has nodes in the other zones.
        cluster.status = _STATUS.RUNNING
        leftovers.add_own_firewall(world, cluster)
        return None
    if errors or (fails and not fails.effect):
        error = errors[0] if errors else fails.error() if fails else None
        node_pools.break_down(
            cluster,
            "GCE_STOCKOUT" if errors else "UNKNOWN",
            error.message if error else "",
        )
        return error
    cluster.status = _STATUS.RUNNING
    leftovers.add_own_firewall(world, cluster)
    return fails.error() if fails else None


def get_cluster(
    world: World, request: container_v1.GetClusterRequest
) -> container_v1.Cluster:
    """Return a cluster with its pools. This advances its operation."""
    world.operations.advance(request.name)
    if world.visible(request.name) is None:
        raise not_found(request.name)
    return _shown(world, request.name)


def _shown(world: World, name: str) -> container_v1.Cluster:
    answer = container_v1.Cluster(world.objects[name])
    pools = world.below(f"{name}/nodePools/")
    answer.node_pools = [node_pools.shown(world, pool) for pool in pools]
    answer.current_node_count = sum(
        checks.nodes_of(world.objects[pool]) for pool in pools
    )
    if answer.status == _STATUS.PROVISIONING:
        return answer
    endpoint = world.endpoint(name)
    answer.endpoint = endpoint.host
    answer.master_auth = container_v1.MasterAuth(cluster_ca_certificate=endpoint.ca)
    if answer.status == _STATUS.RUNNING and world.operations.on_cluster(name):
        answer.status = _STATUS.RECONCILING
    return answer


def list_clusters(
    world: World, request: container_v1.ListClustersRequest
) -> container_v1.ListClustersResponse:
    """Return the clusters of a location, or of all with `-`."""
    prefix = (
        request.parent.removesuffix("-")
        if request.parent.endswith("/-")
        else f"{request.parent}/clusters/"
    )
    names = [
        name
        for name in world.below(prefix)
        if isinstance(world.objects[name], container_v1.Cluster)
    ]
    return container_v1.ListClustersResponse(
        clusters=[_shown(world, name) for name in names]
    )


def delete_cluster(
    world: World, request: container_v1.DeleteClusterRequest
) -> container_v1.Operation:
    """Start to delete a cluster with its pools.

    Objects that its software created outside of it stay.
    """
    cluster = world.objects.get(request.name)
    if cluster is None:
        raise not_found(request.name)
    check_free(world, request.name)
    cluster.status = _STATUS.STOPPING
    met = world.met
    return begin(
        world,
        "DELETE_CLUSTER",
        request.name,
        lambda: _deleted(world, request.name, met),
    )


def _deleted(world: World, name: str, met: list[GcpFault]) -> CloudError | None:
    cluster = world.objects.get(name)
    if cluster is None:
        return None
    fails = first_of(met, OperationFails)
    if first_of(met, HalfDeleted) or (fails and not fails.effect):
        message = (
            fails.message if fails else "The cluster could not be deleted completely."
        )
        for pool in world.below(f"{name}/nodePools/"):
            world.remove(pool)
        node_pools.break_down(cluster, "UNKNOWN", message)
        return fails.error() if fails else CloudError("INTERNAL", message)
    for leak in met:
        if isinstance(leak, Leak):
            leftovers.add(world, cluster, leak.kind)
    leftovers.remove_own_firewall(world, cluster)
    world.remove(name)
    return fails.error() if fails else None


def update_cluster(
    world: World, request: container_v1.UpdateClusterRequest
) -> container_v1.Operation:
    """Start to change exactly one field of a cluster: version, channel or add-ons."""
    cluster = node_pools.ready_cluster(world, request.name)
    fields = [
        field.name
        for field, _ in container_v1.ClusterUpdate.pb(request.update).ListFields()
    ]
    if len(fields) != 1:
        raise invalid("Exactly one update can be applied to a cluster.")
    changed = container_v1.Cluster(cluster)
    kind = "UPDATE_CLUSTER"
    if fields == ["desired_master_version"]:
        changed.current_master_version, kind = (
            _next_version(cluster, request.update.desired_master_version),
            "UPGRADE_MASTER",
        )
    elif fields == ["desired_release_channel"]:
        changed.release_channel = request.update.desired_release_channel
    elif fields == ["desired_addons_config"]:
        changed.addons_config = request.update.desired_addons_config
    else:
        raise CloudError("UNIMPLEMENTED", f"The fake changes no {fields[0]}.")
    return _change(world, request.name, kind, changed)


def _change(
    world: World, name: str, kind: str, changed: container_v1.Cluster
) -> container_v1.Operation:
    fails = first_of(world.met, OperationFails)

    def finish() -> CloudError | None:
        if (fails is None or fails.effect) and name in world.objects:
            world.objects[name] = changed
        return fails.error() if fails else None

    return begin(world, kind, name, finish)


def _next_version(cluster: container_v1.Cluster, wanted: str) -> str:
    version = checks.version(wanted)
    old, new = checks.order(cluster.current_master_version), checks.order(version)
    if new < old:
        raise invalid(
            f'Master cannot be downgraded from "{cluster.current_master_version}" to "{version}".'
        )
    if new[1] > old[1] + 1:
        raise invalid(
            f'Master cannot be upgraded to "{version}": only one minor version at a time.'
        )
    return version


def set_labels(
    world: World, request: container_v1.SetLabelsRequest
) -> container_v1.Operation:
    """Start to replace the labels of a cluster.

    The fingerprint must be the last one.
    """
    cluster = node_pools.ready_cluster(world, request.name)
    checks.check_labels(request.resource_labels.items())
    if request.label_fingerprint != cluster.label_fingerprint:
        raise CloudError(
            "FAILED_PRECONDITION",
            "Labels could not be set due to fingerprint mismatch.",
        )
    changed = container_v1.Cluster(cluster)
    changed.resource_labels = dict(request.resource_labels)
    changed.label_fingerprint = _fingerprint(changed)
    return _change(world, request.name, "SET_LABELS", changed)


def get_server_config(
    world: World, request: container_v1.GetServerConfigRequest
) -> container_v1.ServerConfig:
    """Return the versions that are offered in a location."""
    del world
    if not zones_of(request.name.rpartition("/")[2]):
        raise invalid(f'Location "{request.name}" does not exist.')
    channel = container_v1.ServerConfig.ReleaseChannelConfig(
        channel="REGULAR", default_version=VERSIONS[2], valid_versions=VERSIONS
    )
    return container_v1.ServerConfig(
        default_cluster_version=VERSIONS[2],
        valid_master_versions=VERSIONS,
        valid_node_versions=VERSIONS,
        default_image_type="COS_CONTAINERD",
        valid_image_types=["COS_CONTAINERD", "UBUNTU_CONTAINERD"],
        channels=[channel],
    )
