"""Requests as provisioning sends them."""

from typing import Any

from google.cloud import container_v1

from fakes.gcp.fake import FakeGoogle

REGION = "europe-west4"


def plant_network(google: FakeGoogle) -> None:
    root = f"projects/{google.project}"
    google.plant(f"{root}/global/networks/prod", autoCreateSubnetworks=False)
    google.plant(
        f"{root}/regions/{REGION}/subnetworks/prod-nodes",
        network=f"https://www.googleapis.com/compute/v1/{root}/global/networks/prod",
        ipCidrRange="10.0.0.0/24",
        secondaryIpRanges=[
            {"rangeName": "pods", "ipCidrRange": "10.1.0.0/16"},
            {"rangeName": "services", "ipCidrRange": "10.2.0.0/16"},
        ],
    )


def a_cluster(**fields: Any) -> container_v1.Cluster:
    system = container_v1.NodePool(
        name="system",
        initial_node_count=1,
        config=container_v1.NodeConfig(machine_type="e2-standard-4"),
    )
    ranges = container_v1.IPAllocationPolicy(
        use_ip_aliases=True,
        cluster_secondary_range_name="pods",
        services_secondary_range_name="services",
    )
    given: dict[str, Any] = {
        "name": "prod",
        "initial_cluster_version": "1.35",
        "network": "prod",
        "subnetwork": "prod-nodes",
        "ip_allocation_policy": ranges,
        "node_pools": [system],
        "resource_labels": {"modelplane-owner": "0a1b2c3d"},
    }
    return container_v1.Cluster(given | fields)


def a_pool(
    name: str = "gpu-l4",
    *,
    nodes: int = 1,
    zones: tuple[str, ...] = ("a",),
    **config: Any,
) -> container_v1.NodePool:
    gpu = container_v1.AcceleratorConfig(
        accelerator_type="nvidia-l4", accelerator_count=1
    )
    given = {
        "machine_type": "g2-standard-8",
        "accelerators": [gpu],
        "resource_labels": {"modelplane-owner": "0a1b2c3d"},
    }
    return container_v1.NodePool(
        name=name,
        initial_node_count=nodes,
        locations=[f"{REGION}-{zone}" for zone in zones],
        config=container_v1.NodeConfig(given | config),
    )
