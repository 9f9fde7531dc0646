"""Servers that tell in an error what they were sent: an API server behind a proxy, a hub, a registry."""

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
_HOP_BY_HOP = {"host", "content-length", "transfer-encoding", "connection", "authorization", "accept-encoding", "content-encoding"}


@dataclass
class EchoingProxy:
    """An API server that is asked as its administrator, whoever asks. While `faults` has a status, requests that match are refused."""

    upstream: str
    trust: ssl.SSLContext
    address: str = ""
    authority: str = ""
    """Its certificate authority, as a kubeconfig has it."""
    certificate: dict[str, str] = field(default_factory=dict)
    """A client certificate and its key, as a kubeconfig has them."""
    faults: dict[str, int] = field(default_factory=dict)
    """`METHOD part-of-path` to the status with which such requests are refused."""
    refused: list[tuple[int, str]] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    """Tokens to the status with which whoever has them is refused."""
    tokens: set[str] = field(default_factory=set)
    """What callers have sent."""
    certified: set[str] = field(default_factory=set)
    """The tokens of those that also had a certificate, and its key."""
    written: list[str] = field(default_factory=list)
    """The Secrets and ConfigMaps that were sent."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        authorization = request.headers.get("Authorization", "")
        self.tokens.add(authorization)
        if request.transport and request.transport.get_extra_info("peercert"):
            self.certified.add(authorization)
        if body and re.search(r"/(secrets|configmaps)\b", request.path):
            self.written.append(body.decode())
        if status := self.unknown.get(authorization.partition(" ")[2]):
            return web.json_response(what_was_sent(status, dict(request.headers), body.decode()), status=status)
        for rule, status in self.faults.items():
            method, _, part = rule.partition(" ")
            if method in (request.method, "*") and part in request.path:
                self.refused.append((status, request.path))
                return web.json_response(what_was_sent(status, dict(request.headers), body.decode()), status=status)
        return await self._forward(request, body)

    async def _forward(self, request: web.Request, body: bytes) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        headers["Accept-Encoding"] = "identity"
        async with request.app[_SESSION].request(request.method, f"{self.upstream}{request.path_qs}", data=body, headers=headers) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            return response


def what_was_sent(status: int, headers: dict[str, str], body: str) -> dict[str, Any]:
    """A Status of an API server that quotes the request in every way that one might."""
    sent = headers.get("Authorization", "").partition(" ")[2]
    quoted = f"token {sent!r} refused; headers {headers}; body {body}; user {sent}"
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": quoted,
        "reason": {401: "Unauthorized", 403: "Forbidden", 409: "Conflict", 422: "Invalid"}.get(status, "InternalError"),
        "details": {"name": sent, "causes": [{"reason": "FieldValueInvalid", "message": quoted, "field": sent}]},
        "code": status,
    }


@contextlib.asynccontextmanager
async def echoing_proxy(upstream: str, trust: ssl.SSLContext, serve: ssl.SSLContext | None = None) -> AsyncIterator[EchoingProxy]:
    """Serve until the end of the block, with TLS if `serve` is given."""
    proxy = EchoingProxy(upstream, trust)
    app = web.Application(client_max_size=1 << 26)
    app[_SESSION] = ClientSession(connector=TCPConnector(ssl=trust, limit=0), timeout=ClientTimeout(total=None), auto_decompress=False)
    app.router.add_route("*", "/{path:.*}", proxy.answer)
    # 0 would be no limit, and a watch does not end by itself.
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serve).start()
    proxy.address = f"{'https' if serve else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield proxy
    finally:
        await runner.cleanup()
        await app[_SESSION].close()


@dataclass
class EchoingHost:
    """A hub and registry, with the Authorization headers and the paths that it was sent."""

    address: str = ""
    sent: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)


@contextlib.contextmanager
def echoing_host() -> Iterator[EchoingHost]:
    """Serve a hub and registry that answers everything with what it was sent.

    A number in a path is the status of the answer; without one a token is wanted, from a server whose address quotes too.
    """
    host = EchoingHost()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Log nothing."""

        def do_GET(self) -> None:
            authorization = self.headers.get("Authorization", "")
            host.sent.add(authorization)
            host.paths.add(self.path)
            value = authorization.partition(" ")[2]
            statuses = re.findall(r"(?<=[/-])\d{3}(?=/|$)", self.path)
            status = int(statuses[0]) if statuses else HTTPStatus.UNAUTHORIZED
            body = json.dumps(
                {"errors": [{"code": value, "message": f"{authorization} {value}"}], "error": value, "token": f"{value}\n", "sha": value}
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
                **({"Location": f"ftp://{self.headers['Host']}/{value}"} if status == HTTPStatus.TEMPORARY_REDIRECT else {}),
            }
            for name, content in fields.items():
                self.send_header(name, content)
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as host.address:
        yield host
