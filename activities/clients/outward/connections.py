"""Open connections only to allowed addresses, or through the worker's proxy.

The check uses the address of the socket, so it covers literal addresses, every response
of a resolver and every redirect. With a proxy, only the host in the URL can be checked
here. The proxy connects to the server, and must reject all other addresses.
"""

import errno
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from activities.clients.outward.addresses import AddressRules

_DNS_SECONDS = 60


def connector(
    rules: AddressRules, proxy: str, *, ssl: Any, limit: int
) -> aiohttp.TCPConnector:
    """Return the connector of a session.

    With a proxy it connects only to the proxy, at any address that the operator chose.
    """
    return aiohttp.TCPConnector(
        limit=limit,
        ssl=ssl,
        socket_factory=None if proxy else _guarded_sockets(rules),
        resolver=aiohttp.ThreadedResolver(),
        ttl_dns_cache=_DNS_SECONDS,
    )


def proxy_for(url: str) -> str:
    """Return the proxy of HTTPS_PROXY or HTTP_PROXY for a URL, or "".

    Hosts in NO_PROXY have no proxy. Credentials come from the proxy's own URL. A netrc
    file is never read: it may contain passwords for any host, and tenants choose the
    host.
    """
    parts = urlsplit(url)
    found = getproxies().get(parts.scheme, "")
    return "" if not found or proxy_bypass(parts.netloc.rpartition("@")[2]) else found


def _guarded_sockets(rules: AddressRules) -> Callable[[tuple[Any, ...]], socket.socket]:
    def open_socket(address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, target = address
        if reason := rules.refused_address(str(target[0])):
            raise OSError(errno.EACCES, f"refused: {reason}")
        return socket.socket(family=family, type=kind, proto=protocol)

    return open_socket
