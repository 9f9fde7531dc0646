"""The GKE cluster, with the system pool in it, and its GPU pools."""

from activities.clouds.counts import SYSTEM_COUNTS, Counts, pool_counts
from activities.clouds.gke.wanted.foundation import PODS_RANGE, SERVICES_RANGE, SUBNET
from activities.clouds.gke.wanted.inputs import GkeInputs
from activities.clouds.graph import Call, DesiredObject, Machines, Parameters
from activities.clouds.nodes import gpu_node_labels, system_node_labels
from activities.clouds.owner import SYSTEM_POOL, gcp_description, gcp_labels
from activities.clouds.pools import CloudPool
from api_types.resources.inference_class import GkeNodes

CLUSTER = "cluster"

_SYSTEM_MACHINE = "e2-standard-4"
# A regional cluster has nodes in so many zones where none are named.
_ZONES_OF_REGION = 3
_IMAGE = "COS_CONTAINERD"
_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
# By it the autoscaler of GKE knows, of a pool without nodes, that its GPUs are given to pods by DRA.
_DRA_DRIVER_LABEL = "cloud.google.com/gke-nvidia-gpu-dra-driver"
# The release channel demands both.
_MANAGEMENT = {"auto_upgrade": True, "auto_repair": True}


def cluster_object(inputs: GkeInputs) -> DesiredObject:
    """Give the regional cluster. With a pool in the call GKE makes no default pool."""
    base = inputs.owner.base
    cluster: Parameters = {
        "name": base,
        "description": gcp_description(inputs.owner, CLUSTER),
        "initial_cluster_version": inputs.gke.kubernetes_version,
        "release_channel": {"channel": "REGULAR"},
        "network": base,
        "subnetwork": inputs.subnet,
        "ip_allocation_policy": {
            "use_ip_aliases": True,
            "cluster_secondary_range_name": PODS_RANGE,
            "services_secondary_range_name": SERVICES_RANGE,
        },
        "workload_identity_config": {"workload_pool": f"{inputs.project}.svc.id.goog"},
        # Without it a claim of a cache waits for ever.
        "addons_config": {"gcp_filestore_csi_driver_config": {"enabled": True}},
        "resource_labels": gcp_labels(inputs.owner, CLUSTER),
        "node_pools": [_system_pool(inputs)],
    }
    call = Call("container", "create_cluster", {"parent": inputs.location, "cluster": cluster})
    machines = Machines(_SYSTEM_MACHINE, inputs.gke.region, SYSTEM_COUNTS.start * _ZONES_OF_REGION, SYSTEM_COUNTS.most * _ZONES_OF_REGION)
    return DesiredObject(CLUSTER, "Cluster", base, (SUBNET,), (call,), "operation DONE, status RUNNING", machines)


def _system_pool(inputs: GkeInputs) -> Parameters:
    return {
        "name": SYSTEM_POOL,
        "initial_node_count": SYSTEM_COUNTS.start,
        "autoscaling": _autoscaling(SYSTEM_COUNTS, total=False),
        "config": {
            "machine_type": _SYSTEM_MACHINE,
            "image_type": _IMAGE,
            "oauth_scopes": _SCOPES,
            "labels": system_node_labels(),
            "resource_labels": gcp_labels(inputs.owner, f"pool/{SYSTEM_POOL}"),
        },
        "management": _MANAGEMENT,
    }


def counts_of(pool: CloudPool[GkeNodes]) -> Counts:
    """Give the counts of a pool as they are written; the autoscaler of GKE takes a pool down to no nodes and up again."""
    return pool_counts(pool.pool, least_default=0)


def nodes_of(inputs: GkeInputs, pool: CloudPool[GkeNodes]) -> tuple[int, int]:
    """Give how many nodes a pool starts with in all its zones, and how many it has at most."""
    counts = counts_of(pool)
    zones = len(pool.pool.zones or ())
    start = _first_per_zone(inputs, pool, counts) * zones
    most = counts.most * zones if inputs.settings.count_scope == "zone" else counts.most
    return start, max(start, most)


def gpu_pool(inputs: GkeInputs, pool: CloudPool[GkeNodes]) -> DesiredObject:
    """Give a GPU pool."""
    counts, nodes = counts_of(pool), pool.nodes
    total = inputs.settings.count_scope == "total"
    gpus: Parameters = {
        "accelerator_type": nodes.accelerator.type,
        "accelerator_count": nodes.accelerator.count,
        "gpu_driver_installation_config": {"gpu_driver_version": "DEFAULT"},
    }
    node_pool: Parameters = {
        "name": pool.name,
        "initial_node_count": _first_per_zone(inputs, pool, counts),
        "autoscaling": _autoscaling(counts, total=total),
        "locations": list(pool.pool.zones or ()),
        "config": {
            "machine_type": nodes.machine_type,
            "disk_size_gb": nodes.disk_size_gb,
            "image_type": _IMAGE,
            "oauth_scopes": _SCOPES,
            "accelerators": [gpus],
            "labels": {**gpu_node_labels(pool.pool.name, nodes.accelerator.type), _DRA_DRIVER_LABEL: "true"},
            "resource_labels": gcp_labels(inputs.owner, pool.key),
        },
        "management": _MANAGEMENT,
    }
    call = Call("container", "create_node_pool", {"parent": f"{inputs.location}/clusters/{inputs.owner.base}", "node_pool": node_pool})
    machines = Machines(nodes.machine_type, inputs.gke.region, *nodes_of(inputs, pool))
    return DesiredObject(pool.key, "NodePool", pool.name, (CLUSTER,), (call,), "operation DONE, status RUNNING", machines)


def _first_per_zone(inputs: GkeInputs, pool: CloudPool[GkeNodes], counts: Counts) -> int:
    """Give the first size of a pool, which GKE always counts per zone."""
    zones = len(pool.pool.zones or ())
    return counts.start if inputs.settings.count_scope == "zone" else -(-counts.start // zones)


def _autoscaling(counts: Counts, *, total: bool) -> Parameters:
    if not counts.autoscaled:
        return {"enabled": False}
    if total:
        return {"enabled": True, "total_min_node_count": counts.least, "total_max_node_count": counts.most}
    return {"enabled": True, "min_node_count": counts.least, "max_node_count": counts.most}
