"""The data plane as processes of the supervisor: the relay outside, and the namespace.

The data plane is optional, because most tests examine applied objects and send no
requests. It needs no privileges: an ordinary user may own a network namespace, and only
one loopback port per Gateway is visible outside.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.cluster.control_plane import ClusterControlPlane
from testbed.cluster.objects import CLUSTER_PORT, CONTROL_PORT
from testbed.cluster.pki import Pair
from testbed.dataplane.names import hosts, provider_authority
from testbed.documents import write_json, write_text
from testbed.node import images
from testbed.process.processes import ProcessSpec
from testbed.waiting import StartFailed

RELAY, ENCLAVE = "relay", "data-plane"
PROBE_SECONDS = 10.0
# Traefik's pause between two configurations. Its default of two seconds is meant for
# clusters that change constantly.
THROTTLE = "100ms"


def port_name(cluster: str) -> str:
    """Return the name of the loopback port of a cluster's Gateway on this machine."""
    return f"{cluster}/gateway"


def obstacle() -> str | None:
    """Return why this machine cannot have a data plane, or None if it can."""
    for tool in ("unshare", "ip", "mount"):
        if shutil.which(tool) is None:
            return (
                f"the data plane needs the program {tool}; install util-linux, mount "
                "and iproute2"
            )
    try:
        tried = subprocess.run(
            [*_own_namespaces(), "true"],
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the data plane needs a network namespace, and `unshare` fails here: {error}"
    if tried.returncode != 0:
        return (
            "the data plane needs a network namespace, and `unshare` fails here: "
            f"{tried.stderr.strip()}"
        )
    return None


def _own_namespaces() -> list[str]:
    # Root needs no user namespace, and some machines forbid user namespaces.
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--mount", "--"]


def processes(
    planes: Sequence[ClusterControlPlane], traefik: Path, stage: int
) -> list[ProcessSpec]:
    """Write the configuration, and return the two processes.

    Raise StartFailed if the machine cannot run them.
    """
    if why := obstacle():
        raise StartFailed(f"{why}; or go without a data plane")
    folder = planes[0].home.folder
    outside, inside, names, stores = (
        folder / "relay.json",
        folder / "enclave.json",
        folder / "hosts",
        folder / "certificates.yaml",
    )
    provider = provider_authority(folder / "provider")
    provider.ensure()
    write_text(names, hosts(planes[0].home, [plane.name for plane in planes]))
    write_json(stores, _stores(provider.pair("provider")))
    write_json(
        outside,
        [
            {
                "listen": f"unix:sockets/{plane.name}.api",
                "dial": f"tcp:127.0.0.1:{plane.port('kube-apiserver')}",
            }
            for plane in planes
        ]
        + [
            {
                "listen": f"tcp:127.0.0.1:{plane.port('gateway')}",
                "dial": f"unix:sockets/{plane.name}.gateway",
            }
            for plane in planes
        ]
        + [
            {
                "listen": f"tcp:127.0.0.1:{plane.port('kubelet')}",
                "dial": f"unix:sockets/{plane.name}.kubelet",
            }
            for plane in planes
            if plane.kubelet
        ],
    )
    write_json(
        inside,
        {
            "relays": [
                {
                    "listen": f"tcp:127.0.0.1:{plane.port('kube-apiserver')}",
                    "dial": f"unix:sockets/{plane.name}.api",
                }
                for plane in planes
            ]
            + [
                {
                    "listen": f"unix:sockets/{plane.name}.gateway",
                    "dial": f"tcp:{_entry(plane)}",
                }
                for plane in planes
            ],
            "traefiks": [
                {
                    "argv": _traefik(traefik, plane, stores),
                    # Trust only this authority, instead of the machine's authorities.
                    "environment": {
                        "KUBECONFIG": str(plane.kubeconfig),
                        "SSL_CERT_FILE": str(provider.ca),
                    },
                    "log": str(plane.home.logs / f"{plane.name}.traefik.log"),
                }
                for plane in planes
                if not plane.real_pods
            ],
            "nodes": [_node(plane) for plane in planes if plane.real_pods],
            "clusters": [
                {
                    "server": plane.server,
                    "pki": str(plane.authority.folder),
                    "kubelet": f"sockets/{plane.name}.kubelet",
                }
                for plane in planes
                if plane.simulated
            ],
            "hosts": str(names),
            "provider": str(provider.folder),
        },
    )
    return [
        ProcessSpec(
            RELAY,
            [sys.executable, "-m", "testbed.dataplane.relay", str(outside)],
            stage=stage,
        ),
        ProcessSpec(
            ENCLAVE,
            [
                *_own_namespaces(),
                sys.executable,
                "-m",
                "testbed.dataplane.enclave",
                str(inside),
            ],
            stage=stage,
        ),
    ]


def _node(plane: ClusterControlPlane) -> dict[str, object]:
    return {
        "name": plane.name,
        "server": plane.server,
        "pki": str(plane.authority.folder),
        "folder": str(plane.folder / "pods"),
        "logs": str(plane.home.logs),
        "programs": images.installed(plane.programs),
        "services": plane.service_cidr,
        "name_server_address": plane.home.name_server(plane.name),
        "gateway": plane.home.gateway_address(plane.name),
        "api": f"sockets/{plane.name}.api",
    }


def _stores(pair: Pair) -> dict[str, object]:
    """Configure a default certificate, although no client uses TLS.

    Without it Traefik creates an RSA key for each configuration, which delays the next
    configuration by seconds on a busy machine.
    """
    certificate = {"certFile": str(pair.certificate), "keyFile": str(pair.key)}
    return {"tls": {"stores": {"default": {"defaultCertificate": certificate}}}}


def _entry(plane: ClusterControlPlane) -> str:
    # Only Traefik needs a port of its own.
    port = CLUSTER_PORT if plane.has_nodes else CONTROL_PORT
    return f"{plane.home.gateway_address(plane.name)}:{port}"


def _traefik(program: Path, plane: ClusterControlPlane, stores: Path) -> list[str]:
    return [
        str(program),
        "--global.checkNewVersion=false",
        "--global.sendAnonymousUsage=false",
        f"--entryPoints.web.address={_entry(plane)}",
        "--entryPoints.web.reusePort=true",
        f"--providers.providersThrottleDuration={THROTTLE}",
        f"--providers.file.filename={stores}",
        "--providers.file.watch=false",
        "--providers.kubernetesGateway=true",
        f"--providers.kubernetesGateway.statusAddress.ip={plane.home.gateway_address(plane.name)}",
        # Services of the control cluster may refer to Middlewares.
        *([] if plane.simulated else ["--providers.kubernetesCRD=true"]),
        "--log.level=INFO",
    ]
