"""Starts the clusters of a fleet, in an order in which each process finds its needs."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from testbed.cluster import objects
from testbed.cluster.control_plane import ClusterControlPlane
from testbed.cluster.kube import Kube, collection
from testbed.cluster.seeding import seed
from testbed.documents import write_json
from testbed.fleet.fleet_file import FleetFile
from testbed.fleet.home import Home
from testbed.node import envoy_stack
from testbed.process.processes import ProcessSpec
from testbed.process.supervision import Supervision
from testbed.readiness import (
    has_address,
    has_root_ca,
    is_healthy,
    listens,
    nodes_are_ready,
)

# A start usually takes seconds. It takes minutes if builds and tests share two cores.
SERVER_SECONDS = 180
CONTROLLER_SECONDS = 120

GATEWAY = "gateway"


def bring_up(
    plane: ClusterControlPlane,
    fleet: FleetFile,
    supervision: Supervision,
    definitions: dict[str, Path],
    gateway_objects: list[dict[str, Any]],
    *,
    data_plane: bool,
) -> None:
    """Start a cluster, seed it, and wait until its parts are ready.

    Raises StartFailed.
    """
    cluster = next((each for each in fleet.clusters if each.name == plane.name), None)
    server = f"{plane.name}.kube-apiserver"
    with Kube(plane.server, plane.authority) as kube:
        # Wait for the store separately. Otherwise the message about a failed store
        # would name the API server.
        supervision.wait_for(
            f"{plane.name}.etcd",
            partial(listens, plane.port("etcd")),
            SERVER_SECONDS,
            "does not listen",
        )
        supervision.wait_for(server, kube.is_ready, SERVER_SECONDS, "is not ready")
        # Delete the leases of an earlier kwok, which had another identity. Until
        # they expire, no pod of the nodes changes.
        kube.delete(objects.NODE_LEASES)
        supervision.want(plane.controllers())
        seed(
            plane,
            kube,
            cluster,
            fleet,
            definitions,
            gateway_objects=gateway_objects,
            data_plane=data_plane,
        )
        manager = f"{plane.name}.kube-controller-manager"
        supervision.wait_for(
            manager, lambda: has_root_ca(kube), CONTROLLER_SECONDS, "does not work"
        )
        if plane.has_nodes:
            supervision.wait_for(
                f"{plane.name}.kwok",
                lambda: nodes_are_ready(kube),
                CONTROLLER_SECONDS,
                "made no node ready",
            )
            for part, scheme in (
                ("kube-scheduler", "https"),
                *([("lws-health", "http")] if cluster and plane.stack else ()),
            ):
                name = f"{plane.name}.{part.removesuffix('-health')}"
                url = f"{scheme}://127.0.0.1:{plane.port(part)}/readyz"
                supervision.wait_for(
                    name,
                    partial(is_healthy, url),
                    CONTROLLER_SECONDS,
                    "is not ready",
                )


def gateway_process(
    planes: list[ClusterControlPlane], home: Home, stage: int
) -> ProcessSpec:
    """Return the process that stands in for the controllers of Gateways."""
    config = home.folder / "gateway.json"
    write_json(
        config,
        [
            {
                "name": plane.name,
                "server": plane.server,
                "pki": str(plane.authority.folder),
                "address": home.gateway_address(plane.name),
                "simulated": plane.simulated,
                "served": _gateway_controller(plane),
            }
            for plane in planes
            if plane.stack
        ],
    )
    return ProcessSpec(
        GATEWAY,
        [sys.executable, "-m", "testbed.dataplane.controllers", str(config)],
        stage=stage,
    )


def await_gateways(
    planes: list[ClusterControlPlane], controller: str, supervision: Supervision
) -> None:
    """Wait until `controller` has set the addresses of all Gateways.

    The controller is the process that reconciles Gateways here.
    """
    for plane in filter(lambda each: each.stack, planes):
        name = objects.GATEWAY if plane.simulated else objects.CONTROL_GATEWAY
        gateways = collection(
            "gateway.networking.k8s.io/v1", "Gateway", objects.NAMESPACE
        )
        path = f"{gateways}/{name}"
        with Kube(plane.server, plane.authority) as kube:
            otherwise = f"gave the Gateway of {plane.name} no address"
            supervision.wait_for(
                controller,
                partial(has_address, kube, path),
                CONTROLLER_SECONDS,
                otherwise,
            )


def _gateway_controller(plane: ClusterControlPlane) -> str | None:
    """Return the real controller of a cluster's Gateways, or None without one."""
    if plane.real_pods:
        return envoy_stack.CONTROLLER
    return objects.TRAEFIK_CONTROLLER if plane.data_plane else None
