"""The objects a simulated cluster starts with: nodes, devices, gateway, storage class.

Pure functions from the fleet file to Kubernetes documents. Devices are published as a DRA driver would: one ResourceSlice per node and
driver, so that the real scheduler allocates them and finds out by itself when they run out.
"""

from collections.abc import Iterable
from typing import Any

from testbed.fleet.fleet_file import Cluster, Device, FleetFile, NodeClass, Pool
from testbed.programs.versions import KUBERNETES

NAMESPACE = "modelplane-system"
GATEWAY = "inference-gateway"
CONTROL_GATEWAY = "modelplane"
GATEWAY_CLASS = "testbed"
GATEWAY_CONTROLLER = "testbed.modelplane.ai/gateway-controller"
TRAEFIK_CLASS = "traefik"
TRAEFIK_CONTROLLER = "traefik.io/gateway-controller"
CLUSTER_PORT, CONTROL_PORT = 80, 8000
"""Ports of the listeners; Traefik attaches a listener only to an entry point with the very same port."""

STORAGE_CLASS = "testbed-rwx"
PROVISIONER = "testbed.modelplane.ai/volumes"
MANAGED = "testbed.modelplane.ai/simulated"
POOL = "modelplane.ai/pool"
MIDDLEWARES = "modelplane.ai/middlewares"
SYSTEM_NODE = "system"
NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

Document = dict[str, Any]


def base(gateway_class: str, controller: str, *, simulated: bool) -> list[Document]:
    """List what every cluster has, the control cluster included; needs the Gateway API's definitions."""
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


def gateway(gateway_class: str, *, simulated: bool, middlewares: bool = False) -> Document:
    """Render the Gateway of a cluster, or the one all models share on the control cluster; that one may say that it loads Middlewares."""
    annotations = {"annotations": {MIDDLEWARES: "enabled"}} if middlewares and not simulated else {}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": GATEWAY if simulated else CONTROL_GATEWAY, "namespace": NAMESPACE, **annotations},
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


def node_names(cluster: Cluster) -> Iterable[tuple[str, Pool | None]]:
    """Every node of a cluster with its pool; the system node, which runs what needs no GPU, is in none."""
    yield f"{cluster.name}-{SYSTEM_NODE}", None
    for pool in cluster.pools:
        yield from ((f"{cluster.name}-{pool.name}-{number}", pool) for number in range(pool.nodes))


def node(name: str, cluster: Cluster, pool: Pool | None, fleet: FleetFile) -> Document:
    """Render one node: large, and empty of everything but what its class says.

    Nodes of a pool are tainted as GPU nodes are. The system node is not, so that endpoint pickers and hydration Jobs find a place; it
    carries no pool, so that it is not counted as capacity, but in a cluster that a cloud hands out: those have a pool of such nodes.
    """
    label = pool.name if pool else SYSTEM_NODE if cluster.token_review or cluster.cloud else ""
    plugins = {
        device.resource_name: str(device.count)
        for device in (fleet.classes[pool.node_class].devices if pool else ())
        if device.claim == "DevicePlugin" and device.resource_name
    }
    capacity = {"cpu": "192", "memory": "2Ti", "ephemeral-storage": "4Ti", "pods": "110", **plugins}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                MANAGED: "true",
                **({POOL: label} if label else {}),
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **{key: value for key, value in cluster.labels.items() if key.startswith("topology.kubernetes.io/")},
            },
        },
        "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}] if pool else []},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [{"type": "Hostname", "address": name}],
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


def resource_slices(owner: Document, node_class: NodeClass) -> list[Document]:
    """Render what DRA drivers publish for one stored node: one slice per driver, gone with the node."""
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
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": owner["metadata"]["uid"]}],
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


def device_classes(cluster: Cluster, fleet: FleetFile) -> list[Document]:
    """Render the DeviceClasses the classes of a cluster claim through, each open to the drivers that name it."""
    drivers: dict[str, set[str]] = {}
    for pool in cluster.pools:
        for device in fleet.classes[pool.node_class].devices:
            if device.claim == "DRA" and device.device_class_name:
                drivers.setdefault(device.device_class_name, set()).add(device.driver)
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": " || ".join(f'device.driver == "{driver}"' for driver in sorted(names))}}]},
        }
        for name, names in sorted(drivers.items())
    ]


def _devices(device: Device) -> list[Document]:
    attributes = {key: value.model_dump(by_alias=True, exclude_none=True) for key, value in device.attributes.items()}
    capacity = {key: value.model_dump() for key, value in device.capacity.items()}
    return [{"name": f"{device.name}-{number}", "attributes": attributes, "capacity": capacity} for number in range(device.count)]
