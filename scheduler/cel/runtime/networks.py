"""IP addresses and CIDRs, as Go's `net/netip` reads and compares them."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime.values import Opaque

_BITS = re.compile(r"(?:0|[1-9][0-9]{0,2})\Z")
_IPV4 = 4

_LOOPBACKS = ("127.0.0.0/8", "::1/128")
_LINK_LOCAL = ("169.254.0.0/16", "fe80::/10")
_MULTICAST = ("224.0.0.0/4", "ff00::/8")
_LINK_LOCAL_MULTICAST_V4 = "224.0.0.0/24"
_BROADCAST = "255.255.255.255"
# The first two bytes of an IPv6 address whose scope is link-local, without its flags.
_LINK_LOCAL_SCOPE = 0xFF02
_SCOPE_MASK = 0xFF0F

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Ip(Opaque):
    """An IP address without a zone."""

    cel_type: ClassVar[str] = "net.IP"
    address: Address

    def __str__(self) -> str:
        return str(self.address)

    @property
    def family(self) -> int:
        return self.address.version

    @property
    def bit_count(self) -> int:
        return self.address.max_prefixlen


@dataclass(frozen=True, slots=True)
class Cidr(Opaque):
    """An address with a prefix length; bits behind the prefix may be set."""

    cel_type: ClassVar[str] = "net.CIDR"
    ip: Ip
    bits: int

    def __str__(self) -> str:
        return f"{self.ip}/{self.bits}"

    def contains(self, ip: Ip) -> bool:
        """Return whether the prefix includes an address."""
        return self.ip.family == ip.family and _same_prefix(self.ip, ip, self.bits)

    def contains_cidr(self, other: Cidr) -> bool:
        """Return whether the prefix includes every address of another."""
        return self.bits <= other.bits and self.contains(other.ip)

    def masked(self) -> Cidr:
        """Return the prefix with all bits after its length cleared."""
        spare = self.ip.bit_count - self.bits
        address = int(self.ip.address) >> spare << spare
        return Cidr(Ip(type(self.ip.address)(address)), self.bits)


def _same_prefix(a: Ip, b: Ip, bits: int) -> bool:
    return (int(a.address) ^ int(b.address)) >> (a.bit_count - bits) == 0


def parse_ip(text: str) -> Ip | EvalError:
    """Parse an address, as `ip()` does: without a zone, and not IPv4-mapped."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return EvalError(f"{text!r} is not an IP address")
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return EvalError(f"IP address {text!r} with a zone is not allowed")
        if address.ipv4_mapped is not None:
            return EvalError(f"IPv4-mapped IPv6 address {text!r} is not allowed")
    return Ip(address)


def parse_cidr(text: str) -> Cidr | EvalError:
    """Parse an address with a prefix length, as `cidr()` does."""
    address, slash, bits_text = text.rpartition("/")
    ip = parse_ip(address)
    if isinstance(ip, EvalError) or not slash:
        return EvalError(f"{text!r} is not a CIDR such as 10.0.0.0/8")
    if not _BITS.match(bits_text) or int(bits_text) > ip.bit_count:
        return EvalError(f"{text!r} is not a CIDR: its prefix length is out of range")
    return Cidr(ip, int(bits_text))


def _within(blocks: tuple[str, ...]) -> Callable[[Ip], bool]:
    networks = [_constant(block) for block in blocks]

    def within(ip: Ip) -> bool:
        return any(network.contains(ip) for network in networks)

    return within


def _constant(text: str) -> Cidr:
    cidr = parse_cidr(text)
    if isinstance(cidr, EvalError):
        raise cidr
    return cidr


is_loopback = _within(_LOOPBACKS)
is_link_local_unicast = _within(_LINK_LOCAL)
_is_multicast = _within(_MULTICAST)
_is_link_local_multicast_v4 = _within((_LINK_LOCAL_MULTICAST_V4,))


def is_unspecified(ip: Ip) -> bool:
    return int(ip.address) == 0


def is_link_local_multicast(ip: Ip) -> bool:
    if ip.family == _IPV4:
        return _is_link_local_multicast_v4(ip)
    first = int(ip.address) >> (ip.bit_count - 16)
    return first & _SCOPE_MASK == _LINK_LOCAL_SCOPE


def is_global_unicast(ip: Ip) -> bool:
    """Return whether an address is a global unicast address, as in Go.

    Private addresses are included.
    """
    special = (is_unspecified, is_loopback, _is_multicast, is_link_local_unicast)
    return str(ip) != _BROADCAST and not any(test(ip) for test in special)


def network_size(value: Ip | Cidr) -> int:
    """Return the number of bytes that the cost model counts."""
    bits = value.bits if isinstance(value, Cidr) else value.bit_count
    return math.ceil(bits / 8)


def _of_text(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    def guarded(text: Any) -> Any:
        if type(text) is not str:
            return EvalError("no such overload: the argument is no string")
        return read(text)

    return guarded


def _of(kind: type, answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def guarded(value: Any) -> Any:
        if type(value) is not kind:
            return EvalError(f"no such overload: the value is no {kind.__name__}")
        return answer(value)

    return guarded


def _is_canonical(text: str) -> Any:
    ip = parse_ip(text)
    return ip if isinstance(ip, EvalError) else str(ip) == text


def _contains(
    parse: Callable[[str], Any], kind: type, answer: Callable[[Any, Any], bool]
) -> Callable[[Any, Any], Any]:
    def contains(cidr: Any, content: Any) -> Any:
        if type(content) is str:
            content = parse(content)
        if isinstance(content, EvalError):
            return content
        if type(cidr) is not Cidr or type(content) is not kind:
            return EvalError("no such overload: a CIDR contains an IP or a CIDR")
        return answer(cidr, content)

    return contains


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "isIP": _of_text(lambda text: not isinstance(parse_ip(text), EvalError)),
    "ip.isCanonical": _of_text(_is_canonical),
    "family": _of(Ip, lambda ip: ip.family),
    "isUnspecified": _of(Ip, is_unspecified),
    "isLoopback": _of(Ip, is_loopback),
    "isLinkLocalMulticast": _of(Ip, is_link_local_multicast),
    "isLinkLocalUnicast": _of(Ip, is_link_local_unicast),
    "isGlobalUnicast": _of(Ip, is_global_unicast),
    "cidr": _of_text(parse_cidr),
    "isCIDR": _of_text(lambda text: not isinstance(parse_cidr(text), EvalError)),
    "containsIP": _contains(parse_ip, Ip, Cidr.contains),
    "containsCIDR": _contains(parse_cidr, Cidr, Cidr.contains_cidr),
    "prefixLength": _of(Cidr, lambda cidr: cidr.bits),
    "masked": _of(Cidr, Cidr.masked),
}

# `ip` is two functions: `ip(text)` and `cidr.ip()`.
BY_OVERLOAD: dict[str, Callable[..., Any]] = {
    "string_to_ip": _of_text(parse_ip),
    "cidr_ip": _of(Cidr, lambda cidr: cidr.ip),
}
