"""Addresses to which the worker must not connect if a tenant or a server chose them.

A host is checked twice. The host in a URL is checked first, so that a mistake is
reported at once. Then the address of every connection is checked (`connections.py`),
because a name may resolve to any address and to another one each time.
"""

import ipaddress
from dataclasses import dataclass

from api_types.setting_types import Network
from api_types.text.addresses import Ip, meant, normalized_host, written_address

PRIVATE_SETTING = "outbound.privateAddresses"

_LOOPBACK_NAMES = (
    "localhost",
    "localhost.localdomain",
    "ip6-localhost",
    "ip6-loopback",
)
# A proxy may resolve these names where the worker cannot.
_METADATA_NAMES = (
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
)
# Metadata addresses that are not link-local: AWS, Google, Scaleway, Alibaba, Azure,
# Oracle.
_METADATA = tuple(
    ipaddress.ip_network(text)
    for text in (
        "fd00:ec2::/32",
        "fd20:ce::/64",
        "fd00:42::42/128",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
    )
)
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")


@dataclass(frozen=True)
class AddressRules:
    """The allowed addresses.

    Link-local, multicast and metadata addresses are never allowed. `any_private` allows
    all non-public networks except loopback. `private` allows single non-public
    networks. It allows loopback only by a network within the loopback range. `owner`
    describes the machine to which a loopback address belongs.
    """

    any_private: bool = False
    private: tuple[Network, ...] = ()
    loopback: bool = False
    owner: str = "the worker itself"

    def refused_host(self, host: str) -> str:
        """Return why a host must not be connected to, or "" if it may be.

        A DNS name that passes may still resolve to a refused address.
        """
        name = normalized_host(host)
        if not name:
            return "it is neither a DNS name nor an IP address"
        if name in _LOOPBACK_NAMES or name.endswith(".localhost"):
            allowed = self.loopback or any(
                network.is_loopback for network in self.private
            )
            problem = f"{name} is a loopback name: it points at {self.owner}"
            return "" if allowed else problem
        if name in _METADATA_NAMES:
            return f"{name} is the name of a cloud metadata service"
        address = written_address(name)
        return self.refused_address(address) if address else ""

    def refused_address(self, address: str) -> str:
        """Return why an IP address must not be connected to, or "" if it may be."""
        try:
            ip = ipaddress.ip_address(address)
        except ValueError:
            return f"{address} is not an IP address"
        for found in meant(ip):
            reason = self._refused(found, address)
            if reason:
                return reason
        return ""

    def _refused(self, ip: Ip, address: str) -> str:
        if ip.is_link_local:
            return f"{address} is a link-local address, where cloud metadata services answer"
        if any(ip in network for network in _METADATA):
            return f"{address} is an address of a cloud metadata service"
        if ip.is_multicast:
            return f"{address} is a multicast address"
        if ip.is_loopback or ip.is_unspecified or ip in _THIS_NETWORK:
            listed = any(
                ip in network for network in self.private if network.is_loopback
            )
            if self.loopback or listed:
                return ""
            return f"{address} is a loopback address: it points at {self.owner}"
        if (
            self.any_private
            or _is_public(ip)
            or any(ip in network for network in self.private)
        ):
            return ""
        return (
            f"{address} is a private address, which is connected to only if the operator "
            f"lists its network in {PRIVATE_SETTING}"
        )


def api_server_rules(*, allow_loopback: bool) -> AddressRules:
    """Return the rules for API servers, which are often in private networks."""
    return AddressRules(
        any_private=True,
        loopback=allow_loopback,
        owner="the machine that wrote the kubeconfig, not at a cluster",
    )


def _is_public(ip: Ip) -> bool:
    return ip.is_global and not (
        isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local
    )
