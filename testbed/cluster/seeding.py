"""Bring one cluster from "its API server answers" to "it looks like a cluster of the fleet".

Everything is applied again at each start, so a fleet file that changed is followed: nodes that left it are deleted, new ones come.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from testbed.cluster import objects
from testbed.cluster.control_plane import ControlPlane
from testbed.cluster.kube import Kube, collection, path_of
from testbed.cluster.webhooks import custom_resources, lws_webhooks
from testbed.fleet.fleet_file import Cluster, FleetFile
from testbed.waiting import wait_until

ESTABLISHED_SECONDS = 120
PARALLEL = 4

Document = dict[str, Any]


def seed(
    plane: ControlPlane, kube: Kube, cluster: Cluster | None, fleet: FleetFile, definitions: Mapping[str, Path], *, data_plane: bool = False
) -> None:
    """Lay down definitions, gateway and storage class, and for a simulated cluster its nodes and devices.

    With a data plane the Gateway belongs to Traefik, else to the testbed's own controller.
    """
    if cluster is not None and not cluster.stack:
        with ThreadPoolExecutor(PARALLEL) as pool:
            kube.apply(objects.storage_class())
            _seed_nodes(kube, cluster, fleet, pool)
        return
    gateway_class = objects.TRAEFIK_CLASS if data_plane else objects.GATEWAY_CLASS
    controller = objects.TRAEFIK_CONTROLLER if data_plane else objects.GATEWAY_CONTROLLER
    names = ["gateway-api", *(["inference-extension", "lws"] if cluster else ["traefik"] if data_plane else [])]
    crds = [crd for name in names for crd in custom_resources(definitions[name])]
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(kube.apply, crds))
        _await_established(plane, kube, crds)
        list(pool.map(kube.apply, objects.base(gateway_class, controller, simulated=cluster is not None)))
        gateway = objects.gateway(gateway_class, simulated=cluster is not None, middlewares=data_plane)
        if cluster is None:
            _seed_control_gateway(kube, gateway)
            return
        kube.apply(gateway)
        list(pool.map(kube.apply, lws_webhooks(definitions["lws"], plane.port("lws-webhook"), plane.authority.ca)))
        list(pool.map(kube.apply, objects.device_classes(cluster, fleet)))
        _seed_nodes(kube, cluster, fleet, pool)


def _seed_nodes(kube: Kube, cluster: Cluster, fleet: FleetFile, threads: ThreadPoolExecutor) -> None:
    wanted = dict(objects.node_names(cluster))
    for node in kube.list(collection("v1", "Node"), labelSelector=objects.MANAGED):
        if node["metadata"]["name"] not in wanted:
            kube.delete(f"{collection('v1', 'Node')}/{node['metadata']['name']}")

    def seed_node(name: str) -> None:
        document = objects.node(name, cluster, wanted[name], fleet)
        stored = kube.apply(document)
        kube.apply({key: document[key] for key in ("apiVersion", "kind", "status")} | {"metadata": {"name": name}}, "status")
        pool = wanted[name]
        for slice_ in objects.resource_slices(stored, fleet.classes[pool.node_class]) if pool else ():
            kube.apply(slice_)

    list(threads.map(seed_node, wanted))


def _seed_control_gateway(kube: Kube, gateway: Document) -> None:
    """Lay down the control Gateway, or take it from the testbed's own class to Traefik's; once the product applied it, it is left alone."""
    if kube.create(gateway) is not None:
        return
    stored = kube.get(path_of(gateway))
    if stored and stored["spec"]["gatewayClassName"] == objects.GATEWAY_CLASS:
        kube.apply(gateway)


def _await_established(plane: ControlPlane, kube: Kube, crds: list[Document]) -> None:
    wanted = {crd["metadata"]["name"] for crd in crds}

    def missing() -> set[str]:
        stored = kube.list(collection("apiextensions.k8s.io/v1", "CustomResourceDefinition"))
        established = {
            crd["metadata"]["name"]
            for crd in stored
            if any(each["type"] == "Established" and each["status"] == "True" for each in (crd.get("status") or {}).get("conditions") or [])
        }
        return wanted - established

    wait_until(lambda: not missing(), ESTABLISHED_SECONDS, lambda: f"{plane.name}: not established: {', '.join(sorted(missing()))}")
