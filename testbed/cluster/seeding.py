"""Seeding: apply the objects that make a new API server a cluster of the fleet.

Everything is applied again at each start, so that a changed fleet file takes effect:
nodes that were removed from the file are deleted, and new nodes are created.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from testbed.cluster import objects
from testbed.cluster.control_plane import ClusterControlPlane
from testbed.cluster.kube import Kube, collection, path_of
from testbed.cluster.webhooks import custom_resources, lws_webhooks
from testbed.fleet.fleet_file import CONTROL, FleetFile, Pool, SimulatedCluster
from testbed.node.envoy_stack import CERTIFICATES, ENVOY_GROUP
from testbed.waiting import wait_until

# The only node of a control cluster with pods is its system node.
_CONTROL_NODES = SimulatedCluster(
    name=CONTROL,
    pools=[Pool.model_validate({"name": "none", "class": "none", "nodes": 0})],
)
ESTABLISHED_SECONDS = 120
PARALLEL = 4

Document = dict[str, Any]


def seed(
    plane: ClusterControlPlane,
    kube: Kube,
    cluster: SimulatedCluster | None,
    fleet: FleetFile,
    definitions: Mapping[str, Path],
    *,
    gateway_objects: Sequence[Document] = (),
    data_plane: bool = False,
) -> None:
    """Apply definitions, the Gateway, a StorageClass, and nodes of a simulated cluster.

    With a data plane the Gateway belongs to Traefik, otherwise to the testbed's own
    controller. A cluster with real pods has `gateway_objects` instead.
    """
    if cluster is not None and not cluster.stack:
        with ThreadPoolExecutor(PARALLEL) as pool:
            kube.apply(objects.storage_class())
            _seed_nodes(plane, kube, cluster, fleet, pool)
        return
    gateway_class = objects.TRAEFIK_CLASS if data_plane else objects.GATEWAY_CLASS
    controller = (
        objects.TRAEFIK_CONTROLLER if data_plane else objects.GATEWAY_CONTROLLER
    )
    # The chart of Envoy Gateway contains the experimental channel of the Gateway API. The
    # control cluster has its standard channel.
    names = ["envoy-gateway" if plane.real_pods and cluster else "gateway-api"]
    if cluster:
        names += ["inference-extension", "lws"]
    elif data_plane and not plane.real_pods:
        names.append("traefik")
    crds: list[Document] = []
    for name in names:
        crds += custom_resources(definitions[name])
    if cluster is None and plane.real_pods:
        crds += [
            each
            for each in custom_resources(definitions["envoy-gateway"])
            if each["spec"]["group"] == ENVOY_GROUP
        ]
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(kube.apply, crds))
        _await_established(plane, kube, crds)
        base = objects.base(gateway_class, controller, simulated=cluster is not None)
        list(pool.map(kube.apply, base))
        if plane.real_pods:
            _seed_gateway(kube, gateway_objects)
            if cluster is None:
                _seed_nodes(plane, kube, _CONTROL_NODES, fleet, pool)
                return
        gateway = objects.gateway(
            gateway_class, simulated=cluster is not None, middlewares=data_plane
        )
        if cluster is None:
            _seed_control_gateway(kube, gateway)
            return
        if not plane.real_pods:
            kube.apply(gateway)
        webhooks = lws_webhooks(
            definitions["lws"], plane.port("lws-webhook"), plane.authority.ca
        )
        list(pool.map(kube.apply, webhooks))
        list(pool.map(kube.apply, objects.device_classes(cluster, fleet)))
        _seed_nodes(plane, kube, cluster, fleet, pool)


def _seed_gateway(kube: Kube, documents: Sequence[Document]) -> None:
    """Apply the objects of Envoy Gateway.

    A pod that starts before kwok knows the pods of an earlier run may get the address
    of one of them. So the Job does not run again.
    """
    done = kube.get(CERTIFICATES) is not None
    for document in documents:
        if not (done and document["kind"] == "Job"):
            kube.apply(document)


def _seed_nodes(
    plane: ClusterControlPlane,
    kube: Kube,
    cluster: SimulatedCluster,
    fleet: FleetFile,
    threads: ThreadPoolExecutor,
) -> None:
    kubelet_port = plane.port("kubelet") if plane.kubelet else 0
    wanted = dict(objects.node_names(cluster))
    for node in kube.list(collection("v1", "Node"), labelSelector=objects.MANAGED):
        if node["metadata"]["name"] not in wanted:
            kube.delete(f"{collection('v1', 'Node')}/{node['metadata']['name']}")

    def seed_node(name: str) -> None:
        document = objects.node(name, cluster, wanted[name], fleet, kubelet_port)
        stored = kube.apply(document)
        status = {key: document[key] for key in ("apiVersion", "kind", "status")}
        kube.apply(status | {"metadata": {"name": name}}, "status")
        pool = wanted[name]
        if pool:
            node_class = fleet.classes[pool.node_class]
            for slice_ in objects.resource_slices(stored, node_class):
                kube.apply(slice_)

    list(threads.map(seed_node, wanted))


def _seed_control_gateway(kube: Kube, gateway: Document) -> None:
    """Create the control Gateway, or move it from another class of the testbed.

    A Gateway that the product has applied for Traefik is not changed.
    """
    if kube.create(gateway) is not None:
        return
    stored = kube.get(path_of(gateway))
    others = {objects.GATEWAY_CLASS, objects.ENVOY_CLASS}
    if stored and stored["spec"]["gatewayClassName"] in others:
        kube.apply(gateway)


def _await_established(
    plane: ClusterControlPlane, kube: Kube, crds: list[Document]
) -> None:
    wanted = {crd["metadata"]["name"] for crd in crds}

    def missing() -> set[str]:
        stored = kube.list(
            collection("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        )
        return wanted - {crd["metadata"]["name"] for crd in stored if is_ready(crd)}

    def is_ready(crd: Document) -> bool:
        conditions = (crd.get("status") or {}).get("conditions") or []
        return any(
            each["type"] == "Established" and each["status"] == "True"
            for each in conditions
        )

    wait_until(
        lambda: not missing(),
        ESTABLISHED_SECONDS,
        lambda: f"{plane.name}: not established: {', '.join(sorted(missing()))}",
    )
