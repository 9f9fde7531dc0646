"""Hosts and IP addresses in every spelling that resolvers and gateways accept."""

import ipaddress
import re
import socket
from collections.abc import Iterator

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address

_HOST_CHARACTERS_MAX = 253
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.ip_network("64:ff9b:1::/48")
_COMPATIBLE = ipaddress.ip_network("::/96")
# `::` and `::1` do not contain an IPv4 address.
_COMPATIBLE_MIN = 2


def normalized_host(host: str) -> str:
    """Return a host as a resolver sees it, or "" if it is not a host.

    The result is in lower case and ASCII, without a trailing dot.
    """
    host = host.strip("[]")
    if ":" in host:
        address = host.partition("%")[0]
        return address.lower() if re.fullmatch(r"[0-9a-fA-F:.]+", address) else ""
    if len(host) > _HOST_CHARACTERS_MAX:
        return ""
    try:
        # IDNA also converts other digits and dots to ASCII: to a resolver that accepts
        # them, `127\u30020\u30020\u30021` is 127.0.0.1.
        name = host.encode("idna").decode().lower().rstrip(".")
    except UnicodeError:
        return ""
    return name if _HOST.fullmatch(name) else ""


def meant(ip: Ip) -> Iterator[Ip]:
    """Yield the IPv4 addresses that an IPv6 address contains, or the address itself."""
    found: list[Ip] = [*_embedded(ip)] if isinstance(ip, ipaddress.IPv6Address) else []
    yield from found or [ip]


def _embedded(ip: ipaddress.IPv6Address) -> Iterator[ipaddress.IPv4Address]:
    number = int(ip)
    low = ipaddress.IPv4Address(number & 0xFFFFFFFF)
    if (
        ip.ipv4_mapped
        or ip in _NAT64
        or (ip in _COMPATIBLE and number >= _COMPATIBLE_MIN)
    ):
        yield low
    elif ip.sixtofour:
        yield ip.sixtofour
    elif ip.teredo:
        yield from ip.teredo
    elif ip in _NAT64_LOCAL:
        # RFC 6052 splits the address around bits 64 to 71 if the prefix has 48 bits;
        # otherwise the address is at the end.
        upper, lower = (number >> 64) & 0xFFFF, (number >> 40) & 0xFFFF
        yield ipaddress.IPv4Address(upper << 16 | lower) if upper else low


def written_address(name: str) -> str:
    """Return the address that a host is in any spelling, or "" for a DNS name."""
    for parse in (_as_written, _as_resolvers_parse):
        try:
            return parse(name)
        except (ValueError, OSError):
            continue
    return name if ":" in name else ""


def _as_written(name: str) -> str:
    return str(ipaddress.ip_address(name))


def _as_resolvers_parse(name: str) -> str:
    # To a resolver, 2130706433, 0x7f.1 and 127.1 are all 127.0.0.1.
    return socket.inet_ntoa(socket.inet_aton(name))
