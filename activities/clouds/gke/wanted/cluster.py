"""The GKE cluster with its system pool, and its GPU pools."""

from activities.clouds.desired.counts import SYSTEM_COUNTS, Counts, pool_counts
from activities.clouds.desired.graph import (
    CloudCall,
    DesiredObject,
    Machines,
    Parameters,
)
from activities.clouds.desired.nodes import gpu_node_labels, system_node_labels
from activities.clouds.desired.owner import SYSTEM_POOL, gcp_description, gcp_labels
from activities.clouds.desired.pools import CloudPool
from activities.clouds.gke.wanted.foundation import (
    ACCOUNT,
    PODS_RANGE,
    SERVICES_RANGE,
    SUBNET,
)
from activities.clouds.gke.wanted.inputs import GkeInputs
from activities.clouds.gke.wanted.maintenance import maintenance_policy
from api_types.resources.inference_class import GkeNodes

CLUSTER = "cluster"

_SYSTEM_MACHINE = "e2-standard-4"
# The number of zones in which a regional cluster has nodes if no zones are named.
_ZONES_OF_REGION = 3
_IMAGE = "COS_CONTAINERD"
_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
# The autoscaler of GKE reads this label. It means that DRA assigns the GPUs of an empty
# pool.
_DRA_DRIVER_LABEL = "cloud.google.com/gke-nvidia-gpu-dra-driver"
# The release channel requires both.
_MANAGEMENT = {"auto_upgrade": True, "auto_repair": True}
# GKE's default creates a machine before it drains one. There is rarely a spare GPU
# machine, and the upgrade would fail again and again.
_WITHOUT_SPARE: Parameters = {"strategy": "SURGE", "max_surge": 0, "max_unavailable": 1}


def cluster_object(inputs: GkeInputs) -> DesiredObject:
    """Return the regional cluster.

    The call contains a pool, so that GKE creates no default pool.
    """
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
        # Without the driver the volume claim of a cache stays pending.
        "addons_config": {"gcp_filestore_csi_driver_config": {"enabled": True}},
        "resource_labels": gcp_labels(inputs.owner, CLUSTER),
        "maintenance_policy": maintenance_policy(inputs.gke),
        "node_pools": [_system_pool(inputs)],
    }
    call = CloudCall(
        "container", "create_cluster", {"parent": inputs.location, "cluster": cluster}
    )
    machines = Machines(
        _SYSTEM_MACHINE,
        inputs.gke.region,
        SYSTEM_COUNTS.start * _ZONES_OF_REGION,
        SYSTEM_COUNTS.most * _ZONES_OF_REGION,
    )
    return DesiredObject(
        CLUSTER,
        "Cluster",
        base,
        (SUBNET,) if inputs.gke.node_service_account else (SUBNET, ACCOUNT),
        (call,),
        "operation DONE, status RUNNING",
        machines,
    )


def _system_pool(inputs: GkeInputs) -> Parameters:
    return {
        "name": SYSTEM_POOL,
        "initial_node_count": SYSTEM_COUNTS.start,
        "autoscaling": _autoscaling(SYSTEM_COUNTS, total=False),
        "config": {
            "machine_type": _SYSTEM_MACHINE,
            "image_type": _IMAGE,
            "oauth_scopes": _SCOPES,
            "service_account": inputs.node_account,
            "labels": system_node_labels(),
            "resource_labels": gcp_labels(inputs.owner, f"pool/{SYSTEM_POOL}"),
        },
        "management": _MANAGEMENT,
    }


def counts_of(pool: CloudPool[GkeNodes]) -> Counts:
    """Return the counts of a pool's spec. GKE can scale a pool to zero and up again."""
    return pool_counts(pool.pool, least_default=0)


def nodes_of(inputs: GkeInputs, pool: CloudPool[GkeNodes]) -> tuple[int, int]:
    """Return the initial and the maximum number of nodes of a pool over all its zones."""
    counts = counts_of(pool)
    zones = len(pool.pool.zones or ())
    start = _first_per_zone(inputs, pool, counts) * zones
    most = counts.most * zones if inputs.settings.count_scope == "zone" else counts.most
    return start, max(start, most)


def gpu_pool(inputs: GkeInputs, pool: CloudPool[GkeNodes]) -> DesiredObject:
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
            "service_account": inputs.node_account,
            "accelerators": [gpus],
            "labels": {
                **gpu_node_labels(pool.pool.name, nodes.accelerator.type),
                _DRA_DRIVER_LABEL: "true",
            },
            "resource_labels": gcp_labels(inputs.owner, pool.key),
        },
        "management": _MANAGEMENT,
        "upgrade_settings": _WITHOUT_SPARE,
    }
    call = CloudCall(
        "container",
        "create_node_pool",
        {
            "parent": f"{inputs.location}/clusters/{inputs.owner.base}",
            "node_pool": node_pool,
        },
    )
    machines = Machines(nodes.machine_type, inputs.gke.region, *nodes_of(inputs, pool))
    return DesiredObject(
        pool.key,
        "NodePool",
        pool.name,
        (CLUSTER,),
        (call,),
        "operation DONE, status RUNNING",
        machines,
    )


def _first_per_zone(
    inputs: GkeInputs, pool: CloudPool[GkeNodes], counts: Counts
) -> int:
    """Return the initial size of a pool, which GKE always counts per zone."""
    zones = len(pool.pool.zones or ())
    return (
        counts.start
        if inputs.settings.count_scope == "zone"
        else -(-counts.start // zones)
    )


def _autoscaling(counts: Counts, *, total: bool) -> Parameters:
    if not counts.autoscaled:
        return {"enabled": False}
    if total:
        return {
            "enabled": True,
            "total_min_node_count": counts.least,
            "total_max_node_count": counts.most,
        }
    return {
        "enabled": True,
        "min_node_count": counts.least,
        "max_node_count": counts.most,
    }
