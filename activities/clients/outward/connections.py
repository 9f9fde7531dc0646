"""How connections are opened: only to allowed addresses, or through the proxy that the worker's environment names.

The check is made on the address of the socket, so it holds for literal addresses, for every answer of a resolver and for every redirect.
A proxy connects for the worker: then only the host as it is written can be checked here, and the proxy has to refuse the rest.
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


def connector(rules: AddressRules, proxy: str, *, ssl: Any, limit: int) -> aiohttp.TCPConnector:
    """Make the connector of a session. With a proxy it connects to that one only, at whatever address the operator has it."""
    return aiohttp.TCPConnector(
        limit=limit,
        ssl=ssl,
        socket_factory=None if proxy else _guarded_sockets(rules),
        resolver=aiohttp.ThreadedResolver(),
        ttl_dns_cache=_DNS_SECONDS,
    )


def proxy_for(url: str) -> str:
    """Give the proxy of HTTPS_PROXY or HTTP_PROXY for a URL, except for hosts in NO_PROXY; empty if there is none.

    Credentials come from the proxy's own URL. A netrc file is never read: it may hold passwords for any host, and tenants choose the host.
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
