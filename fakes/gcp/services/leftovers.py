"""Objects in a network that GKE or software in a cluster creates.

They outlive the cluster.
"""

import json

from google.cloud import container_v1, filestore_v1

from fakes.gcp.calls.faults import Kind
from fakes.gcp.services.world import World

COMPUTE = "https://www.googleapis.com/compute/v1"


def put(world: World, name: str, **fields: object) -> str:
    """Store an object of compute under its full name. Return the name."""
    world.objects[name] = {
        "name": name.rpartition("/")[2],
        "id": str(world.number()),
        "selfLink": f"{COMPUTE}/{name}",
        **fields,
    }
    return name


def _own_firewall(world: World, cluster: container_v1.Cluster) -> str:
    return f"{world.root}/global/firewalls/gke-{cluster.name}-{cluster.id[-8:]}-all"


def add_own_firewall(world: World, cluster: container_v1.Cluster) -> None:
    """Create the firewall rule that GKE creates for a cluster."""
    put(
        world,
        _own_firewall(world, cluster),
        network=_network(world, cluster),
        direction="INGRESS",
    )


def remove_own_firewall(world: World, cluster: container_v1.Cluster) -> None:
    """Remove the firewall rule of GKE."""
    world.remove(_own_firewall(world, cluster))


def _network(world: World, cluster: container_v1.Cluster) -> str:
    return f"{COMPUTE}/{world.root}/global/networks/{cluster.network}"


def backend_service_balancer(
    world: World, cluster: container_v1.Cluster, service: str
) -> list[str]:
    """Create the objects of a Service as today's load balancer controller does.

    The names follow kubernetes/ingress-gce, pkg/utils/namer/l4_namer.go. Only
    firewall rules and groups name the network.
    """
    region = str(cluster.locations[0]).rpartition("-")[0]
    regional, top, zonal = (
        f"{world.root}/regions/{region}",
        f"{world.root}/global",
        f"{world.root}/zones/{cluster.locations[0]}",
    )
    uid, suffix, network = cluster.id[-8:], world.number(), _network(world, cluster)
    words = service.replace("/", "-")[:39]
    name = f"k8s2-{uid}-{words}-{suffix:08x}"
    of_service = (
        f'{{"networking.gke.io/service-name":"{service}",'
        '"networking.gke.io/api-version":"ga"}'
    )
    shared = (
        '{"networking.gke.io/service-name":"","networking.gke.io/api-version":"ga",'
        '"networking.gke.io/resource-description":"This resource is shared by all L4 '
        'XLB Services using ExternalTrafficPolicy: Cluster."}'
    )
    of_group = json.dumps(
        {
            "cluster-uid": uid,
            "namespace": service.partition("/")[0],
            "service-name": service.partition("/")[2],
        }
    )
    check = put(
        world,
        f"{regional}/healthChecks/k8s2-{uid}-l4-shared-hc",
        description=shared,
    )
    group = put(
        world,
        f"{zonal}/networkEndpointGroups/{name}",
        network=network,
        description=of_group,
    )
    instances = put(world, f"{zonal}/instanceGroups/k8s-ig--{uid}", network=network)
    backend = put(
        world,
        f"{regional}/backendServices/{name}",
        description=of_service,
        healthChecks=[f"{COMPUTE}/{check}"],
        backends=[{"group": f"{COMPUTE}/{group}"}],
    )
    rule = put(
        world,
        f"{regional}/forwardingRules/k8s2-tcp-{uid}-{words[:35]}-{suffix:08x}",
        description=of_service,
        backendService=f"{COMPUTE}/{backend}",
        IPAddress="203.0.113.12",
    )
    firewalls = [
        put(
            world,
            f"{top}/firewalls/{firewall}",
            network=network,
            description=description,
        )
        for firewall, description in (
            (name, of_service),
            (f"k8s2-{uid}-l4-shared-hc-fw", shared),
        )
    ]
    return [rule, backend, check, group, instances, *firewalls]


def add(world: World, cluster: container_v1.Cluster, kind: Kind) -> list[str]:
    """Create objects as the load balancer controller or a CSI driver of a cluster does.

    Return the full names, users before used objects. A forwarding rule comes with its
    target pool, health check, address, and two firewall rules, one for its clients and
    one for the check, as for a Service of type LoadBalancer. The Service is the
    product's Gateway, and claims belong to caches.
    """
    number = world.number()
    region = str(cluster.locations[0]).rpartition("-")[0]
    regional, top, zonal = (
        f"{world.root}/regions/{region}",
        f"{world.root}/global",
        f"{world.root}/zones/{cluster.locations[0]}",
    )
    uid = f"a{number:031x}"
    service = f"envoy-modelplane-system-inference-gateway-{number:08x}"
    description = f'{{"kubernetes.io/service-name":"envoy-gateway-system/{service}"}}'
    network = _network(world, cluster)
    if kind == "forwarding_rule":
        check = put(
            world,
            f"{top}/httpHealthChecks/k8s-{uid[-16:]}-node",
            description=description,
        )
        pool = put(
            world,
            f"{regional}/targetPools/{uid}",
            healthChecks=[f"{COMPUTE}/{check}"],
            description=description,
        )
        address = put(
            world,
            f"{regional}/addresses/{uid}",
            description=description,
            address="203.0.113.10",
        )
        firewall = put(
            world,
            f"{top}/firewalls/k8s-fw-{uid}",
            network=network,
            description=description,
        )
        rule = put(
            world,
            f"{regional}/forwardingRules/{uid}",
            target=f"{COMPUTE}/{pool}",
            IPAddress=f"{COMPUTE}/{address}",
            network=network,
            description=description,
        )
        of_nodes = f'{{"kubernetes.io/cluster-id":"{uid[-16:]}"}}'
        let_in = put(
            world,
            f"{top}/firewalls/k8s-{uid[-16:]}-node-http-hc",
            network=network,
            description=of_nodes,
        )
        return [rule, pool, check, firewall, address, let_in]
    if kind in {"backend_service_balancer", "user_balancer"}:
        of = (
            "shop/website"
            if kind == "user_balancer"
            else f"envoy-gateway-system/{service}"
        )
        return backend_service_balancer(world, cluster, of)
    if kind == "filestore":
        name = (
            f"{world.root}/locations/{cluster.locations[0]}/instances/pvc-{number:08x}"
        )
        world.objects[name] = filestore_v1.Instance(
            name=name,
            tier="ENTERPRISE",
            state="READY",
            labels={
                "kubernetes_io_created-for_pvc_name": f"modelcache-{number}",
                "storage_gke_io_created-by": "filestore_csi_storage_gke_io",
            }
            | {"storage_gke_io_cluster_name": cluster.name},
            networks=[
                filestore_v1.NetworkConfig(
                    network=f"{world.root}/global/networks/{cluster.network}"
                )
            ],
        )
        return [name]
    if kind == "disk":
        claim = (
            f'{{"kubernetes.io/created-for/pvc/name":"modelcache-{number}",'
            '"kubernetes.io/created-for/pvc/namespace":"default"}'
        )
        marks = {"goog-k8s-cluster-name": cluster.name}
        return [
            put(
                world,
                f"{zonal}/disks/pvc-{number:08x}",
                labels=marks,
                description=claim,
                status="READY",
            )
        ]
    if kind == "firewall":
        return [
            put(
                world,
                f"{top}/firewalls/k8s-fw-{uid}",
                network=network,
                description=description,
            )
        ]
    if kind == "address":
        return [
            put(
                world,
                f"{regional}/addresses/{uid}",
                description=description,
                address="203.0.113.11",
                network=network,
            )
        ]
    if kind == "target_pool":
        return [put(world, f"{regional}/targetPools/{uid}", description=description)]
    if kind == "backend_service":
        return [
            put(
                world,
                f"{regional}/backendServices/k8s2-{uid[-8:]}",
                description=description,
                network=network,
            )
        ]
    if kind == "health_check":
        return [
            put(world, f"{top}/healthChecks/k8s2-{uid[-8:]}", description=description)
        ]
    return [
        put(
            world,
            f"{zonal}/networkEndpointGroups/k8s1-{uid[-8:]}",
            description=description,
            network=network,
        )
    ]
