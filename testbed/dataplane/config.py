"""Describe the data plane to the supervisor: the relay on this side and the namespace on the other.

Optional, because most tests ask what was applied, not what a request does. No privileges are needed: an ordinary user may own a network
namespace, and nothing of it is visible outside but one loopback port per Gateway.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.cluster.control_plane import ControlPlane
from testbed.cluster.objects import CLUSTER_PORT, CONTROL_PORT
from testbed.cluster.pki import Pair
from testbed.dataplane.names import hosts, provider_authority
from testbed.documents import write_json, write_text
from testbed.process.processes import ProcessSpec
from testbed.waiting import StartFailed

RELAY, ENCLAVE = "relay", "data-plane"
PROBE_SECONDS = 10.0
# Of Traefik between two configurations. Its default of two seconds is made for clusters where much changes all the time.
THROTTLE = "100ms"


def port_name(cluster: str) -> str:
    """Name the loopback port at which a cluster's Gateway can be reached from this machine."""
    return f"{cluster}/gateway"


def obstacle() -> str | None:
    """Say why this machine cannot have a data plane; None when it can."""
    for tool in ("unshare", "ip", "mount"):
        if shutil.which(tool) is None:
            return f"the data plane needs the program {tool}; install util-linux, mount and iproute2"
    try:
        tried = subprocess.run([*_own_namespaces(), "true"], capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the data plane needs a network namespace, and `unshare` fails here: {error}"
    if tried.returncode != 0:
        return f"the data plane needs a network namespace, and `unshare` fails here: {tried.stderr.strip()}"
    return None


def _own_namespaces() -> list[str]:
    # Root needs no user namespace, and where those are forbidden root is the way out.
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--mount", "--"]


def processes(planes: Sequence[ControlPlane], traefik: Path, stage: int) -> list[ProcessSpec]:
    """Write the configuration and describe the two processes. Raises StartFailed when the machine cannot have them."""
    if why := obstacle():
        raise StartFailed(f"{why}; or go without a data plane")
    folder = planes[0].home.folder
    outside, inside, names, stores = folder / "relay.json", folder / "enclave.json", folder / "hosts", folder / "certificates.yaml"
    provider = provider_authority(folder / "provider")
    provider.ensure()
    write_text(names, hosts(planes[0].home, [plane.name for plane in planes]))
    write_json(stores, _stores(provider.pair("provider")))
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
                    "argv": _traefik(traefik, plane, stores),
                    # In place of the authorities that every machine knows.
                    "environment": {"KUBECONFIG": str(plane.kubeconfig), "SSL_CERT_FILE": str(provider.ca)},
                    "log": str(plane.home.logs / f"{plane.name}.traefik.log"),
                }
                for plane in planes
            ],
            "clusters": [{"server": plane.server, "pki": str(plane.authority.folder)} for plane in planes if plane.simulated],
            "hosts": str(names),
            "provider": str(provider.folder),
        },
    )
    return [
        ProcessSpec(RELAY, [sys.executable, "-m", "testbed.dataplane.relay", str(outside)], stage=stage),
        ProcessSpec(ENCLAVE, [*_own_namespaces(), sys.executable, "-m", "testbed.dataplane.enclave", str(inside)], stage=stage),
    ]


def _stores(pair: Pair) -> dict[str, object]:
    """Give Traefik a certificate, although nobody asks over TLS: without one it makes an RSA key for each configuration that it takes over.

    On a busy machine that kept it from the next configuration for seconds.
    """
    certificate = {"certFile": str(pair.certificate), "keyFile": str(pair.key)}
    return {"tls": {"stores": {"default": {"defaultCertificate": certificate}}}}


def _entry(plane: ControlPlane) -> str:
    return f"{plane.home.gateway_address(plane.name)}:{CLUSTER_PORT if plane.simulated else CONTROL_PORT}"


def _traefik(program: Path, plane: ControlPlane, stores: Path) -> list[str]:
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
        # Services of the control cluster may name Middlewares.
        *([] if plane.simulated else ["--providers.kubernetesCRD=true"]),
        "--log.level=INFO",
    ]
