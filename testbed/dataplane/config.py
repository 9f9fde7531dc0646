"""Describe the data plane to the supervisor: the relay on this side and the namespace on the other.

Optional, because most tests ask what was applied, not what a request does. No privileges are needed: an ordinary user may own a network
namespace, and nothing of it is visible outside but one loopback port per Gateway.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.cluster.control_plane import ControlPlane
from testbed.cluster.objects import CLUSTER_PORT, CONTROL_PORT
from testbed.documents import write_json
from testbed.process.processes import ProcessSpec
from testbed.waiting import StartFailed

RELAY, ENCLAVE = "relay", "data-plane"


def port_name(cluster: str) -> str:
    """Name the loopback port at which a cluster's Gateway can be reached from this machine."""
    return f"{cluster}/gateway"


def processes(planes: Sequence[ControlPlane], traefik: Path, stage: int) -> list[ProcessSpec]:
    """Write the configuration and describe the two processes. Raises StartFailed when the machine lacks a tool."""
    for tool in ("unshare", "ip"):
        if shutil.which(tool) is None:
            raise StartFailed(f"the data plane needs the program {tool}; install util-linux and iproute2, or go without a data plane")
    folder = planes[0].home.folder
    outside, inside = folder / "relay.json", folder / "enclave.json"
    write_json(
        outside,
        [{"listen": f"unix:sockets/{plane.name}.api", "dial": f"tcp:127.0.0.1:{plane.port('kube-apiserver')}"} for plane in planes]
        + [{"listen": f"tcp:127.0.0.1:{plane.port('gateway')}", "dial": f"unix:sockets/{plane.name}.gateway"} for plane in planes],
    )
    write_json(
        inside,
        {
            "relays": [
                {"listen": f"tcp:127.0.0.1:{plane.port('kube-apiserver')}", "dial": f"unix:sockets/{plane.name}.api"} for plane in planes
            ]
            + [{"listen": f"unix:sockets/{plane.name}.gateway", "dial": f"tcp:{_entry(plane)}"} for plane in planes],
            "traefiks": [
                {
                    "argv": _traefik(traefik, plane),
                    "kubeconfig": str(plane.kubeconfig),
                    "log": str(plane.home.logs / f"{plane.name}.traefik.log"),
                }
                for plane in planes
            ],
            "clusters": [{"server": plane.server, "pki": str(plane.authority.folder)} for plane in planes if plane.simulated],
        },
    )
    # Root needs no user namespace, and where those are forbidden root is the way out.
    own = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
    return [
        ProcessSpec(RELAY, [sys.executable, "-m", "testbed.dataplane.relay", str(outside)], stage=stage),
        ProcessSpec(ENCLAVE, [*own, "--", sys.executable, "-m", "testbed.dataplane.enclave", str(inside)], stage=stage),
    ]


def _entry(plane: ControlPlane) -> str:
    return f"{plane.home.gateway_address(plane.name)}:{CLUSTER_PORT if plane.simulated else CONTROL_PORT}"


def _traefik(program: Path, plane: ControlPlane) -> list[str]:
    return [
        str(program),
        "--global.checkNewVersion=false",
        "--global.sendAnonymousUsage=false",
        f"--entryPoints.web.address={_entry(plane)}",
        "--entryPoints.web.reusePort=true",
        "--providers.kubernetesGateway=true",
        f"--providers.kubernetesGateway.statusAddress.ip={plane.home.gateway_address(plane.name)}",
        "--log.level=INFO",
    ]
