"""Which addresses the worker must not connect to when somebody else chose them.

A host is checked twice: as it is written, so that a mistake is said at once, and the address of every connection that is opened for it,
because a name may resolve to anything and to something else each time.
"""

import ipaddress
import socket

_LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")


def refused_host(host: str, *, allow_loopback: bool) -> str:
    """Say why a host must not be connected to; empty if it may be. A DNS name may still resolve to a refused address."""
    if host in _LOCAL_NAMES or host.endswith(".localhost"):
        return "" if allow_loopback else f"{host} is a loopback name: it points at the machine that wrote the kubeconfig, not at a cluster"
    return next((reason for address in _addresses(host) if (reason := refused_address(address, allow_loopback=allow_loopback))), "")


def refused_address(address: str, *, allow_loopback: bool) -> str:
    """Say why an IP address must not be an API server's; empty if it may be."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    if ip.is_link_local:
        return f"{address} is a link-local address, where cloud metadata services answer"
    if ip.is_multicast:
        return f"{address} is a multicast address"
    if (ip.is_loopback or ip.is_unspecified) and not allow_loopback:
        return f"{address} is a loopback address: it points at the machine that wrote the kubeconfig, not at a cluster"
    return ""


def _addresses(host: str) -> list[str]:
    """Give the address that a host is, in any of the forms that resolvers accept; none for a DNS name."""
    for parse in (_as_written, _as_resolvers_parse):
        try:
            return [parse(host)]
        except (ValueError, OSError):
            continue
    return []


def _as_written(host: str) -> str:
    return str(ipaddress.ip_address(host.partition("%")[0]))


def _as_resolvers_parse(host: str) -> str:
    # 2130706433, 0x7f.1 and 127.1 are all 127.0.0.1 to a resolver.
    return socket.inet_ntoa(socket.inet_aton(host))
