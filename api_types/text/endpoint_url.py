"""Parse the URL of a ModelEndpoint into host, port and problems.

Admission rejects a URL that can never be reached or that contains a secret; every other
problem is a warning.
"""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

PORTS = {"https": 443}
DEFAULT_PORT = 80
PORT_MAX = 65535
REWRITE_PATH_MAX = 1024


@dataclass(frozen=True)
class EndpointUrl:
    """The location of an endpoint, and the problems of its URL."""

    scheme: str = ""
    host: str = ""
    """Lower-case name or address, IPv6 without brackets; empty if there is none."""
    port: int = 0
    errors: tuple[str, ...] = ()
    """Problems for which admission rejects the URL."""
    warnings: tuple[str, ...] = ()
    """Problems that keep the URL out of routes, although it may be stored."""

    @property
    def is_name(self) -> bool:
        return bool(self.host) and _address(self.host) is None

    @property
    def problems(self) -> tuple[str, ...]:
        return self.errors + self.warnings


def read_url(url: str) -> EndpointUrl:
    """Parse a URL. It never raises; problems are part of the result."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError as error:
        return EndpointUrl(errors=(f"not a URL: {error}",))
    errors: list[str] = []
    if not host:
        errors.append("has no host; write it as https://host[:port]/path")
    if "@" in parts.netloc:
        errors.append(
            "credentials do not belong in a URL; it is stored and shown in plain text"
        )
    port, port_problem = _port(parts.netloc, parts.scheme)
    if port_problem:
        errors.append(port_problem)
    address = _address(host)
    warnings = _host_warnings(host, address)
    if parts.scheme not in ("http", "https"):
        warnings.insert(0, f'scheme must be http or https, got "{parts.scheme}"')
    return EndpointUrl(parts.scheme, host, port, tuple(errors), tuple(warnings))


def masked(url: str) -> str:
    """Return a URL with the part before `@` masked, because it may hold a password."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    if not separator or "@" not in authority:
        return url
    return f"{scheme}://***@{authority.rpartition('@')[2]}{slash}{path}"


def _port(netloc: str, scheme: str) -> tuple[int, str]:
    default = PORTS.get(scheme, DEFAULT_PORT)
    # The text after the last colon, behind the bracket of an IPv6 address. An empty
    # port is the default port.
    text = netloc.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
    if not text:
        return default, ""
    if not (text.isascii() and text.isdigit()):
        return default, f'port "{text}" is not a number'
    digits = text.lstrip("0")
    if not digits or len(digits) > len(str(PORT_MAX)) or int(digits) > PORT_MAX:
        return default, f"port must be between 1 and {PORT_MAX}, got {text}"
    return int(digits), ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _host_warnings(
    host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
) -> list[str]:
    if address is not None and (address.is_loopback or address.is_link_local):
        return [f"{host} is a loopback or link-local address, which no route may use"]
    if address is None and host and "." not in host.rstrip("."):
        return [f'"{host}" is not a fully qualified host name']
    return []


def rewrite_path_problems(path: str) -> tuple[str, ...]:
    """Return the reasons why a route cannot have this rewrite path."""
    problems = []
    if not path.startswith("/"):
        problems.append('must start with "/"')
    if len(path) > REWRITE_PATH_MAX:
        problems.append(
            f"must be at most {REWRITE_PATH_MAX} characters, got {len(path)}"
        )
    if "//" in path or "/../" in path or path.endswith("/.."):
        problems.append('must not contain "//" or "/../"')
    return tuple(problems)
