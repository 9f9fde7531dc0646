"""Names and addresses that exist only inside the data plane.

A ModelEndpoint may name a host, so there are some: one for the Gateway of each cluster, and one provider of models outside of the fleet,
which answers at port 80 and, with a certificate for its name, at port 443. Nothing resolves names in the data plane but a hosts file.
"""

from collections.abc import Iterable
from pathlib import Path

from testbed.cluster.pki import Authority
from testbed.fleet.home import GATEWAY_NETWORK, Home

DOMAIN = "testbed.example"
PROVIDER = f"provider.{DOMAIN}"
# Far behind the Gateways of clusters, which count from the beginning of their network.
PROVIDER_ADDRESS = str(GATEWAY_NETWORK.broadcast_address - 1)
PROVIDER_MODEL = "provided"


def gateway_host(cluster: str) -> str:
    """Name the host under which the Gateway of a cluster is found."""
    return f"{cluster}.gateway.{DOMAIN}"


def hosts(home: Home, clusters: Iterable[str]) -> str:
    """Render the hosts file of the data plane."""
    lines = ["127.0.0.1 localhost", f"{PROVIDER_ADDRESS} {PROVIDER}"]
    lines += [f"{home.gateway_address(cluster)} {gateway_host(cluster)}" for cluster in clusters]
    return "".join(f"{line}\n" for line in lines)


def provider_authority(folder: Path) -> Authority:
    """Give the authority behind the provider's certificate, the only one that gateways trust."""
    return Authority(folder, clients={}, servers={"provider": [PROVIDER]})
