"""A loopback CONNECT proxy that opens tunnels to named hosts only."""

import base64
import contextlib
import http.server
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from tests.environment.http_server import serving

_CHUNK = 64 << 10


@dataclass
class ConnectProxy:
    """The address of the proxy and the requested hosts.

    `login` is `user:password` or empty.
    """

    address: str = ""
    login: str = ""
    tunnels: list[str] = field(default_factory=list)
    refused: int = 0

    @property
    def url(self) -> str:
        """The proxy's URL, with the login."""
        return (
            f"http://{self.login}@{self.address}"
            if self.login
            else f"http://{self.address}"
        )


@contextlib.contextmanager
def connect_proxy(hosts: Mapping[str, str], login: str = "") -> Iterator[ConnectProxy]:
    """Serve a proxy.

    `hosts` maps the known `name:port` to an `address:port` on loopback.
    """
    proxy = ConnectProxy(login=login)
    wanted = f"Basic {base64.b64encode(login.encode()).decode()}" if login else ""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_CONNECT(self) -> None:
            if wanted and self.headers.get("Proxy-Authorization") != wanted:
                proxy.refused += 1
                self.send_error(HTTPStatus.PROXY_AUTHENTICATION_REQUIRED)
                return
            proxy.tunnels.append(self.path)
            if self.path not in hosts:
                self.send_error(HTTPStatus.BAD_GATEWAY)
                return
            host, _, port = hosts[self.path].rpartition(":")
            with socket.create_connection((host, int(port))) as upstream:
                self.send_response(HTTPStatus.OK)
                self.end_headers()
                back = threading.Thread(
                    target=_relay, args=(upstream, self.connection), daemon=True
                )
                back.start()
                _relay(self.connection, upstream)
                back.join()
            self.close_connection = True

    with serving(Handler) as proxy.address:
        yield proxy


def _relay(source: socket.socket, target: socket.socket) -> None:
    """Copy until the source ends or either side closes."""
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
