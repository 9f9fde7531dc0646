"""An unreliable connection to a Kubernetes API server.

A proxy that fails requests by a plan, loses responses and resets connections. It serves
HTTPS with its own certificate and has its own kubeconfig, so a worker uses it like the
cluster. It forwards all other requests to the real API server with the administrator's
credential. Its random choices come from a seed, so that a run can be repeated.
"""

import asyncio
import base64
import contextlib
import datetime as dt
import ipaddress
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import aiohttp
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from api_types.clock import utc_now
from testbed.running import ClusterRunning
from tests.random_cases import generator

# Hop-by-hop headers: each describes one of the two connections.
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "transfer-encoding",
        "host",
        "authorization",
        "content-length",
    }
)
_CHUNK_BYTES = 1 << 16


class Fault(Enum):
    """The ways in which a request can fail."""

    CONFLICT = HTTPStatus.CONFLICT
    INVALID = HTTPStatus.UNPROCESSABLE_ENTITY
    THROTTLED = HTTPStatus.TOO_MANY_REQUESTS
    ERROR = HTTPStatus.INTERNAL_SERVER_ERROR
    RESET = "the connection breaks before the request arrives"
    LOST_ANSWER = "the request is served, but its response never arrives"


TRANSIENT = (
    Fault.CONFLICT,
    Fault.THROTTLED,
    Fault.ERROR,
    Fault.RESET,
    Fault.LOST_ANSWER,
)
"""Faults that a retry overcomes."""

_REASONS = {
    Fault.CONFLICT: "Conflict",
    Fault.INVALID: "Invalid",
    Fault.THROTTLED: "TooManyRequests",
    Fault.ERROR: "InternalError",
}


class Request(NamedTuple):
    """The input of a plan. `path` has no query."""

    method: str
    path: str
    watch: bool


Plan = Callable[[Request], Fault | None]


@dataclass
class RandomFaults:
    """Fail a share of all requests, each in a random way.

    Watches break, but are never refused.
    """

    share: float
    faults: tuple[Fault, ...] = TRANSIENT

    def __post_init__(self) -> None:
        self._chance = generator()

    def __call__(self, request: Request) -> Fault | None:
        """Choose a fault for one request."""
        draw, fault = self._chance.random(), self._chance.choice(self.faults)
        if draw >= self.share:
            return None
        return Fault.RESET if request.watch else fault


@dataclass
class Always:
    """Fail every request of a kind in one namespace in the same way."""

    fault: Fault
    method: str
    namespace: str
    resource: str

    def __call__(self, request: Request) -> Fault | None:
        """Return the fault if the request matches."""
        found = (
            request.method == self.method
            and f"/namespaces/{self.namespace}/{self.resource}/" in request.path
        )
        return self.fault if found else None


@dataclass
class FaultyProxy:
    """A running proxy. `served` counts requests."""

    cluster: ClusterRunning
    served: int = 0
    port: int = 0
    _authority: str = ""
    _runner: web.AppRunner | None = None
    _site: web.TCPSite | None = None
    _tls: ssl.SSLContext | None = None
    _upstream: aiohttp.ClientSession | None = None
    _plans: list[tuple[Plan, Counter[Fault]]] = field(default_factory=list)

    def kubeconfig(self) -> bytes:
        """Return a kubeconfig for the proxy."""
        server = {
            "server": f"https://127.0.0.1:{self.port}",
            "certificate-authority-data": _base64(self._authority),
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "faulty",
            "clusters": [{"name": "faulty", "cluster": server}],
            "contexts": [
                {"name": "faulty", "context": {"cluster": "faulty", "user": "faulty"}}
            ],
            "users": [{"name": "faulty", "user": {"token": "known-to-the-proxy-only"}}],
        }
        text: str = yaml.safe_dump(document)
        return text.encode()

    @contextlib.asynccontextmanager
    async def failing(self, plan: Plan) -> AsyncIterator[Counter[Fault]]:
        """Fail requests by this plan, besides other plans, while the body runs.

        Yield the counts of its faults.
        """
        entry = (plan, Counter[Fault]())
        self._plans.append(entry)
        try:
            yield entry[1]
        finally:
            self._plans.remove(entry)

    @contextlib.asynccontextmanager
    async def unreachable(self) -> AsyncIterator[None]:
        """Break every connection and accept no new one while the body runs."""
        assert self._site
        await self._site.stop()
        self._break_connections()
        try:
            yield
        finally:
            await self._listen()

    async def start(self, folder: Path) -> None:
        """Serve on a free port.

        The key and the certificate are in `folder` only until they are loaded.
        """
        self._authority, self._tls = _certificate(folder)
        self._upstream = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=_administrator(self.cluster, folder), limit=0
            ),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        )
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        await self._runner.setup()
        await self._listen()

    async def stop(self) -> None:
        """Stop serving and close all connections."""
        self._break_connections()
        if self._runner:
            await self._runner.cleanup()
        if self._upstream:
            await self._upstream.close()

    def _break_connections(self) -> None:
        """Break all connections, including idle ones."""
        assert self._runner
        assert self._runner.server
        for connection in self._runner.server.connections:
            if connection.transport:
                connection.transport.abort()

    async def _listen(self) -> None:
        assert self._runner
        self._site = web.TCPSite(
            self._runner,
            "127.0.0.1",
            self.port,
            ssl_context=self._tls,
            reuse_address=True,
        )
        await self._site.start()
        ((_, self.port),) = self._runner.addresses

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.served += 1
        received = Request(
            request.method, request.path, request.query.get("watch") == "true"
        )
        fault = self._fault_for(received)
        if fault in _REASONS:
            return _refusal(fault)
        if fault is Fault.RESET:
            return _cut(request)
        return await self._forward(request, lose=fault is Fault.LOST_ANSWER)

    def _fault_for(self, request: Request) -> Fault | None:
        for plan, injected in self._plans:
            if fault := plan(request):
                injected[fault] += 1
                return fault
        return None

    async def _forward(self, request: web.Request, *, lose: bool) -> web.StreamResponse:
        assert self._upstream
        sent = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in _HOP_BY_HOP
        }
        body = await request.read() or None
        try:
            async with self._upstream.request(
                request.method,
                self.cluster.server + request.path_qs,
                headers=sent,
                data=body,
            ) as answer:
                if lose:
                    await answer.read()
                    return _cut(request)
                kept = {
                    name: value
                    for name, value in answer.headers.items()
                    if name.lower() not in _HOP_BY_HOP
                }
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, ConnectionError):
            # The real server is down, or the caller has closed the connection.
            return _cut(request)


@contextlib.asynccontextmanager
async def faulty_proxy(
    cluster: ClusterRunning, folder: Path
) -> AsyncIterator[FaultyProxy]:
    """Run a proxy in front of a cluster while the body runs."""
    proxy = FaultyProxy(cluster)
    await proxy.start(folder)
    try:
        yield proxy
    finally:
        await proxy.stop()


def both(
    *plans: Callable[[Request], Fault | None],
) -> Callable[[Request], Fault | None]:
    """Join plans. The first plan with a fault wins."""
    return lambda request: next(
        (fault for plan in plans if (fault := plan(request))), None
    )


def _refusal(fault: Fault) -> web.Response:
    code = int(fault.value)
    seconds = {"Retry-After": "1"} if fault is Fault.THROTTLED else {}
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"injected {_REASONS[fault]}",
        "reason": _REASONS[fault],
        "details": {"retryAfterSeconds": 1} if seconds else {},
        "code": code,
    }
    return web.Response(
        status=code,
        headers=seconds,
        content_type="application/json",
        text=json.dumps(status),
    )


def _cut(request: web.Request) -> web.StreamResponse:
    if isinstance(request.transport, asyncio.WriteTransport):
        request.transport.abort()
    return web.Response(status=HTTPStatus.BAD_GATEWAY)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _certificate(folder: Path) -> tuple[str, ssl.SSLContext]:
    """Make a self-signed certificate for the loopback address.

    Return its PEM and the TLS settings of a server.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "faulty-proxy")])
    now = utc_now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (place := folder / "proxy.pem").touch(mode=0o600)
    place.write_bytes(pem + private)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(place)
    place.unlink()
    return pem.decode(), context


def _administrator(cluster: ClusterRunning, folder: Path) -> ssl.SSLContext:
    """Convert the administrator's kubeconfig to the TLS settings of a client."""
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    (named,), (user,) = document["clusters"], document["users"]
    authority, *pair = (
        base64.b64decode(data)
        for data in (
            named["cluster"]["certificate-authority-data"],
            user["user"]["client-certificate-data"],
            user["user"]["client-key-data"],
        )
    )
    context = ssl.create_default_context(cadata=authority.decode())
    (place := folder / "administrator.pem").touch(mode=0o600)
    place.write_bytes(b"".join(_lines(pair)))
    context.load_cert_chain(place)
    place.unlink()
    return context


def _lines(parts: Iterable[bytes]) -> list[bytes]:
    return [part.rstrip(b"\n") + b"\n" for part in parts]
