"""Names and addresses that exist only inside the data plane.

A ModelEndpoint may name a host. The Gateway of each cluster has a host name. So does
one model provider outside the fleet, which serves HTTP at port 80 and, with a
certificate for its name, HTTPS at port 443. Only a hosts file resolves names in the
data plane.
"""

from collections.abc import Iterable
from pathlib import Path

from testbed.cluster.pki import Authority
from testbed.fleet.home import GATEWAY_NETWORK, Home

DOMAIN = "testbed.example"
PROVIDER = f"provider.{DOMAIN}"
# Far above the addresses of Gateways, which start at the beginning of their network.
PROVIDER_ADDRESS = str(GATEWAY_NETWORK.broadcast_address - 1)
PROVIDER_MODEL = "provided"


def gateway_host(cluster: str) -> str:
    """Return the host name of a cluster's Gateway."""
    return f"{cluster}.gateway.{DOMAIN}"


def hosts(home: Home, clusters: Iterable[str]) -> str:
    """Render the hosts file of the data plane."""
    lines = ["127.0.0.1 localhost", f"{PROVIDER_ADDRESS} {PROVIDER}"]
    lines += [
        f"{home.gateway_address(cluster)} {gateway_host(cluster)}"
        for cluster in clusters
    ]
    return "".join(f"{line}\n" for line in lines)


def provider_authority(folder: Path) -> Authority:
    """Return the authority of the provider's certificate.

    Gateways trust no other authority.
    """
    return Authority(folder, clients={}, servers={"provider": [PROVIDER]})
