"""Read the URL of a ModelEndpoint: host and port, and everything that makes it unusable.

Admission refuses what can never be reached and what would put a secret into a history; the rest is a warning there. Whatever was stored
is reported by the endpoint itself, with the same sentences.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

PORTS = {"https": 443}
DEFAULT_PORT = 80
PORT_MAX = 65535
REWRITE_PATH_MAX = 1024

_USERINFO = re.compile(r"//[^/?#]*@")

AddressType = Literal["IPv4", "IPv6", "FQDN"]


@dataclass(frozen=True)
class EndpointUrl:
    """Where an endpoint is, and what is wrong with it."""

    scheme: str = ""
    host: str = ""
    """Lower-case name or address, IPv6 without brackets; empty if there is none."""
    port: int = 0
    address_type: AddressType = "FQDN"
    refusals: tuple[str, ...] = ()
    """Why admission refuses it."""
    doubts: tuple[str, ...] = ()
    """Why no route can use it, although it may be stored."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that makes it unusable."""
        return self.refusals + self.doubts


def masked(url: str) -> str:
    """Give the URL without credentials."""
    return _USERINFO.sub("//***@", url)


def read_url(url: str) -> EndpointUrl:
    """Take a URL apart; never raises."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError as error:
        return EndpointUrl(refusals=(f"not a URL: {error}",))
    refusals: list[str] = []
    if not host:
        refusals.append("has no host; write it as https://host[:port]/path")
    if "@" in parts.netloc:
        refusals.append("credentials do not belong in a URL; it is stored and shown in plain text")
    port, port_problem = _port(parts.netloc, parts.scheme)
    if port_problem:
        refusals.append(port_problem)
    address = _address(host)
    doubts = [
        *([] if parts.scheme in ("http", "https") else [f'scheme must be http or https, got "{parts.scheme}"']),
        *_host_doubts(host, address),
    ]
    kind: AddressType = "FQDN" if address is None else ("IPv4" if address.version == 4 else "IPv6")  # noqa: PLR2004 - IP versions
    return EndpointUrl(parts.scheme, host, port, kind, tuple(refusals), tuple(doubts))


def _port(netloc: str, scheme: str) -> tuple[int, str]:
    default = PORTS.get(scheme, DEFAULT_PORT)
    # What follows the last colon after the bracket of an IPv6 address; an empty port is the default one.
    text = netloc.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
    if not text:
        return default, ""
    if not (text.isascii() and text.isdigit()):
        return default, f'port "{text}" is not a number'
    port = int(text)
    return (port, "") if 1 <= port <= PORT_MAX else (default, f"port must be between 1 and {PORT_MAX}, got {text}")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _host_doubts(host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> list[str]:
    if address is not None and (address.is_loopback or address.is_link_local):
        return [f"{host} is a loopback or link-local address, which no route may use"]
    if address is None and host and "." not in host.rstrip("."):
        return [f'"{host}" is not a fully qualified host name']
    return []


def rewrite_path_problems(path: str) -> tuple[str, ...]:
    """Say why a rewrite path can be in no route; empty if it can."""
    problems = []
    if not path.startswith("/"):
        problems.append('must start with "/"')
    if len(path) > REWRITE_PATH_MAX:
        problems.append(f"must be at most {REWRITE_PATH_MAX} characters, got {len(path)}")
    if "//" in path or "/../" in path or path.endswith("/.."):
        problems.append('must not contain "//" or "/../"')
    return tuple(problems)
