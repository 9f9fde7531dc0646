"""Servers whose errors quote requests: an API server behind a proxy, a hub, a registry."""

import contextlib
import http.server
import json
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

from tests.environment.http_server import serving

_SESSION = web.AppKey("session", ClientSession)
_HOP_BY_HOP = {
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "authorization",
    "accept-encoding",
    "content-encoding",
}


@dataclass
class EchoingProxy:
    """An API server whose proxy sends all requests as the administrator.

    While `faults` has a status, the proxy refuses matching requests.
    """

    upstream: str
    trust: ssl.SSLContext
    address: str = ""
    authority: str = ""
    """The certificate authority, in the form of a kubeconfig."""
    certificate: dict[str, str] = field(default_factory=dict)
    """A client certificate and its key, in the form of a kubeconfig."""
    faults: dict[str, int] = field(default_factory=dict)
    """The status of refused requests, by `METHOD part-of-path`."""
    refused: list[tuple[int, str]] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    """The status of refused callers, by token."""
    tokens: set[str] = field(default_factory=set)
    """The credentials of all requests."""
    certified: set[str] = field(default_factory=set)
    """The tokens of requests with a client certificate."""
    written: list[str] = field(default_factory=list)
    """The Secrets and ConfigMaps in requests."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        authorization = request.headers.get("Authorization", "")
        self.tokens.add(authorization)
        if request.transport and request.transport.get_extra_info("peercert"):
            self.certified.add(authorization)
        if body and re.search(r"/(secrets|configmaps)\b", request.path):
            self.written.append(body.decode())
        if status := self.unknown.get(authorization.partition(" ")[2]):
            return web.json_response(
                what_was_sent(status, dict(request.headers), body.decode()),
                status=status,
            )
        for rule, status in self.faults.items():
            method, _, part = rule.partition(" ")
            if method in (request.method, "*") and part in request.path:
                self.refused.append((status, request.path))
                return web.json_response(
                    what_was_sent(status, dict(request.headers), body.decode()),
                    status=status,
                )
        return await self._forward(request, body)

    async def _forward(self, request: web.Request, body: bytes) -> web.StreamResponse:
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in _HOP_BY_HOP
        }
        headers["Accept-Encoding"] = "identity"
        async with request.app[_SESSION].request(
            request.method,
            f"{self.upstream}{request.path_qs}",
            data=body,
            headers=headers,
        ) as answer:
            kept = {
                name: value
                for name, value in answer.headers.items()
                if name.lower() not in _HOP_BY_HOP
            }
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            return response


def what_was_sent(status: int, headers: dict[str, str], body: str) -> dict[str, Any]:
    """Return a Status that quotes the request in every possible field."""
    sent = headers.get("Authorization", "").partition(" ")[2]
    quoted = f"token {sent!r} refused; headers {headers}; body {body}; user {sent}"
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": quoted,
        "reason": {
            401: "Unauthorized",
            403: "Forbidden",
            409: "Conflict",
            422: "Invalid",
        }.get(status, "InternalError"),
        "details": {
            "name": sent,
            "causes": [
                {"reason": "FieldValueInvalid", "message": quoted, "field": sent}
            ],
        },
        "code": status,
    }


@contextlib.asynccontextmanager
async def echoing_proxy(
    upstream: str, trust: ssl.SSLContext, serve: ssl.SSLContext | None = None
) -> AsyncIterator[EchoingProxy]:
    """Serve until the end of the block, with TLS if `serve` is given."""
    proxy = EchoingProxy(upstream, trust)
    app = web.Application(client_max_size=1 << 26)
    app[_SESSION] = ClientSession(
        connector=TCPConnector(ssl=trust, limit=0),
        timeout=ClientTimeout(total=None),
        auto_decompress=False,
    )
    app.router.add_route("*", "/{path:.*}", proxy.answer)
    # 0 would mean no limit, and a watch does not end by itself.
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serve).start()
    proxy.address = (
        f"{'https' if serve else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    )
    try:
        yield proxy
    finally:
        await runner.cleanup()
        await app[_SESSION].close()


@dataclass
class EchoingHost:
    """A hub and registry that records Authorization headers and paths."""

    address: str = ""
    sent: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)


@contextlib.contextmanager
def echoing_host() -> Iterator[EchoingHost]:
    """Serve a hub and registry that quotes every request.

    A number in a path is the status of the answer. Without a number the client wants a
    token, from a server whose address quotes too.
    """
    host = EchoingHost()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            authorization = self.headers.get("Authorization", "")
            host.sent.add(authorization)
            host.paths.add(self.path)
            value = authorization.partition(" ")[2]
            statuses = re.findall(r"(?<=[/-])\d{3}(?=/|$)", self.path)
            status = int(statuses[0]) if statuses else HTTPStatus.UNAUTHORIZED
            body = json.dumps(
                {
                    "errors": [{"code": value, "message": f"{authorization} {value}"}],
                    "error": value,
                    "token": f"{value}\n",
                    "sha": value,
                }
            ).encode()
            self.send_response(status, value or None)
            quoting = f"http://{self.headers['Host']}/500/{value}"
            fields = {
                "WWW-Authenticate": f'Bearer realm="{quoting}",service="{value}",scope="{value}"',
                "Docker-Content-Digest": value,
                "X-Error-Message": value,
                "Retry-After": value,
                "Content-Length": str(len(body)),
                **({"Location": quoting} if status == HTTPStatus.FOUND else {}),
                **(
                    {"Location": f"ftp://{self.headers['Host']}/{value}"}
                    if status == HTTPStatus.TEMPORARY_REDIRECT
                    else {}
                ),
            }
            for name, content in fields.items():
                self.send_header(name, content)
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as host.address:
        yield host
