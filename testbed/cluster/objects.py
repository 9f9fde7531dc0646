"""The objects that a simulated cluster starts with.

These are pure functions from the fleet file to Kubernetes documents. Devices are
published as a DRA driver publishes them, with one ResourceSlice per node and driver, so
that the real scheduler allocates them and detects when none is free.
"""

from collections.abc import Iterable
from typing import Any

from testbed.fleet.fleet_file import (
    FleetFile,
    NodeClass,
    Pool,
    SimulatedCluster,
    SimulatedDevice,
)
from testbed.programs.versions import KUBERNETES

NAMESPACE = "modelplane-system"
GATEWAY = "inference-gateway"
CONTROL_GATEWAY = "modelplane"
GATEWAY_CLASS = "testbed"
GATEWAY_CONTROLLER = "testbed.modelplane.ai/gateway-controller"
TRAEFIK_CLASS = "traefik"
TRAEFIK_CONTROLLER = "traefik.io/gateway-controller"
ENVOY_CLASS = "envoy"
CLUSTER_PORT, CONTROL_PORT = 80, 8000
"""Ports of the listeners.

Traefik attaches a listener only to an entry point with the same port.
"""

STORAGE_CLASS = "testbed-rwx"
PROVISIONER = "testbed.modelplane.ai/volumes"
MANAGED = "testbed.modelplane.ai/simulated"
POOL = "modelplane.ai/pool"
MIDDLEWARES = "modelplane.ai/middlewares"
SYSTEM_NODE = "system"
NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

Document = dict[str, Any]


def base(gateway_class: str, controller: str, *, simulated: bool) -> list[Document]:
    """Return the objects that every cluster has, including the control cluster.

    They need the definitions of the Gateway API.
    """
    documents: list[Document] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": {"name": gateway_class},
            "spec": {"controllerName": controller},
        },
    ]
    if simulated:
        documents.append(storage_class())
    return documents


def storage_class() -> Document:
    """Render the class of the volumes that the testbed binds."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS},
        "provisioner": PROVISIONER,
        "volumeBindingMode": "Immediate",
    }


def gateway(
    gateway_class: str, *, simulated: bool, middlewares: bool = False
) -> Document:
    """Render the Gateway of a cluster, or the shared one of the control cluster.

    The shared one may declare that it loads Middlewares.
    """
    metadata: Document = {
        "name": GATEWAY if simulated else CONTROL_GATEWAY,
        "namespace": NAMESPACE,
    }
    if middlewares and not simulated:
        metadata["annotations"] = {MIDDLEWARES: "enabled"}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": metadata,
        "spec": {
            "gatewayClassName": gateway_class,
            "listeners": [
                {
                    "name": "http" if simulated else "web",
                    "protocol": "HTTP",
                    "port": CLUSTER_PORT if simulated else CONTROL_PORT,
                    "allowedRoutes": {"namespaces": {"from": "All"}},
                }
            ],
        },
    }


def node_names(cluster: SimulatedCluster) -> Iterable[tuple[str, Pool | None]]:
    """Yield every node of a cluster with its pool.

    The system node, which runs pods without GPUs, is in no pool.
    """
    yield f"{cluster.name}-{SYSTEM_NODE}", None
    for pool in cluster.pools:
        yield from (
            (f"{cluster.name}-{pool.name}-{number}", pool)
            for number in range(pool.nodes)
        )


def node(
    name: str,
    cluster: SimulatedCluster,
    pool: Pool | None,
    fleet: FleetFile,
    kubelet_port: int = 0,
) -> Document:
    """Render one node. The API server finds its kubelet at a loopback port, if any.

    A node has ample CPU and memory, and only the devices of its class. Nodes of a pool
    are tainted like GPU nodes. The system node is not tainted, so that endpoint pickers
    and hydration Jobs can run there. It has no pool label, so that it does not count as
    capacity. An exception is a cluster that a fake cloud hands out: its system nodes
    are a pool.
    """
    devices = fleet.classes[pool.node_class].devices if pool else ()
    plugins = {
        device.resource_name: str(device.count)
        for device in devices
        if device.claim == "DevicePlugin" and device.resource_name
    }
    capacity = {
        "cpu": "192",
        "memory": "2Ti",
        "ephemeral-storage": "4Ti",
        "pods": "110",
        **plugins,
    }
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": _node_labels(name, cluster, pool)},
        "spec": {"taints": [taint] if pool else []},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": "127.0.0.1"},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "osImage": "simulated",
                "kernelVersion": "simulated",
                "containerRuntimeVersion": "simulated",
                "kubeletVersion": f"v{KUBERNETES}",
                "kubeProxyVersion": "",
                "machineID": name,
                "systemUUID": name,
                "bootID": name,
            },
        },
    }


def _node_labels(
    name: str, cluster: SimulatedCluster, pool: Pool | None
) -> dict[str, str]:
    labels = {
        MANAGED: "true",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    if pool:
        labels[POOL] = pool.name
    elif cluster.token_review or cluster.cloud:
        labels[POOL] = SYSTEM_NODE
    topology = {
        key: value
        for key, value in cluster.labels.items()
        if key.startswith("topology.kubernetes.io/")
    }
    return labels | topology


def resource_slices(owner: Document, node_class: NodeClass) -> list[Document]:
    """Render the slices that DRA drivers publish for one stored node.

    There is one slice per driver. It is deleted with the node.
    """
    name = owner["metadata"]["name"]
    drivers: dict[str, list[Document]] = {}
    for device in node_class.devices:
        if device.claim == "DRA":
            drivers.setdefault(device.driver, []).extend(_devices(device))
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                "name": f"{name}-{driver}",
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "Node",
                        "name": name,
                        "uid": owner["metadata"]["uid"],
                    }
                ],
            },
            "spec": {
                "driver": driver,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        }
        for driver, devices in drivers.items()
    ]


def device_classes(cluster: SimulatedCluster, fleet: FleetFile) -> list[Document]:
    """Render the DeviceClasses that the classes of a cluster claim.

    Each selects the drivers that name it.
    """
    drivers: dict[str, set[str]] = {}
    for pool in cluster.pools:
        for device in fleet.classes[pool.node_class].devices:
            if device.claim == "DRA" and device.device_class_name:
                drivers.setdefault(device.device_class_name, set()).add(device.driver)
    return [_device_class(name, names) for name, names in sorted(drivers.items())]


def _device_class(name: str, drivers: set[str]) -> Document:
    terms = [f'device.driver == "{driver}"' for driver in sorted(drivers)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": " || ".join(terms)}}]},
    }


def _devices(device: SimulatedDevice) -> list[Document]:
    attributes = {
        key: value.model_dump(by_alias=True, exclude_none=True)
        for key, value in device.attributes.items()
    }
    capacity = {key: value.model_dump() for key, value in device.capacity.items()}
    return [
        {
            "name": f"{device.name}-{number}",
            "attributes": attributes,
            "capacity": capacity,
        }
        for number in range(device.count)
    ]
