"""The part of a kubelet that an API server calls: logs and ports of pods.

One server answers for all nodes of a cluster. It accepts only the cluster's API server,
by its client certificate. Simulated engines have no processes, so that no command can
run in them and no earlier run has a log.
"""

import asyncio
import contextlib
import itertools
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import aiohttp
from aiohttp import web

from testbed.cluster.pki import Authority
from testbed.dataplane.relay import clear_socket

CLIENT, CLIENT_NAME = "etcd-client", "kube-apiserver"
_LINES_MAX = 1000
_READ_BYTES = 1 << 16
_PROTOCOL = "v4.channel.k8s.io"
_PORT_BYTES = 2


class _Line(NamedTuple):
    number: int
    seconds: float
    text: str

    def shown(self, *, timestamped: bool) -> bytes:
        moment = datetime.fromtimestamp(self.seconds, UTC)
        when = f"{moment:%Y-%m-%dT%H:%M:%S.%f}000Z " if timestamped else ""
        return f"{when}{self.text}\n".encode()


class ContainerLog:
    """The last lines of one container's output."""

    def __init__(self) -> None:
        self._lines: deque[_Line] = deque(maxlen=_LINES_MAX)
        self._numbers = itertools.count(1)
        self._changed = asyncio.Event()
        self._ended = False

    def write(self, text: str) -> None:
        self._lines.append(_Line(next(self._numbers), time.time(), text))
        self._wake()

    def end(self) -> None:
        """End the streams of readers that follow the log."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def read(self, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Yield the lines that Kubernetes' options select."""
        since = time.time() - float(query.get("sinceSeconds", "inf"))
        timestamped = query.get("timestamps") == "true"
        found = [line for line in self._lines if line.seconds >= since]
        if "tailLines" in query:
            found = found[max(0, len(found) - int(query["tailLines"])) :]
        last = self._lines[-1].number if self._lines else 0
        for line in found:
            yield line.shown(timestamped=timestamped)
        while query.get("follow") == "true" and not self._ended:
            changed = self._changed
            for line in [line for line in self._lines if line.number > last]:
                last = line.number
                yield line.shown(timestamped=timestamped)
            await changed.wait()


class ServedPod(NamedTuple):
    """A pod with an engine, its address, and the logs of its containers."""

    namespace: str
    name: str
    address: str
    logs: Mapping[str, ContainerLog]


ListPods = Callable[[], Iterable[ServedPod]]


async def serve_kubelet(list_pods: ListPods, authority: Authority, path: str) -> None:
    """Serve at a Unix socket until cancelled."""
    clear_socket(Path(path))
    server = authority.pair("apiserver")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(server.certificate, server.key)
    app = web.Application(middlewares=[_only_api_server])
    kubelet = _Kubelet(list_pods)
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", kubelet.log)
    app.router.add_route(
        "*", "/exec/{namespace}/{pod}/{container}", kubelet.refuse_command
    )
    app.router.add_get("/portForward/{namespace}/{pod}", kubelet.forward)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.UnixSite(runner, path, ssl_context=context).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _only_api_server(
    request: web.Request, handler: Handler
) -> web.StreamResponse:
    certificate = request.get_extra_info("peercert") or {}
    names = [value for part in certificate.get("subject", ()) for _, value in part]
    if CLIENT_NAME not in names:
        raise web.HTTPForbidden(text="only the API server may call a kubelet")
    return await handler(request)


class _Kubelet:
    def __init__(self, list_pods: ListPods) -> None:
        self._list_pods = list_pods

    async def log(self, request: web.Request) -> web.StreamResponse:
        """Send the log of a container."""
        container = request.match_info["container"]
        log = self._pod(request).logs.get(container, ContainerLog())
        if request.query.get("previous") == "true":
            raise web.HTTPBadRequest(
                text=f'previous terminated container "{container}" in pod '
                f'"{request.match_info["pod"]}" not found'
            )
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            async for line in log.read(request.query):
                await response.write(line)
        return response

    async def refuse_command(self, request: web.Request) -> web.StreamResponse:
        """Refuse a command."""
        raise web.HTTPBadRequest(
            text=f'pod "{request.match_info["pod"]}" has a simulated engine, which has '
            "no processes in which a command could run"
        )

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Carry one connection to a port of a pod."""
        port = int(request.query["port"])
        address = self._pod(request).address
        socket = web.WebSocketResponse(protocols=[_PROTOCOL])
        await socket.prepare(request)
        for channel in (0, 1):
            first = bytes((channel,)) + port.to_bytes(_PORT_BYTES, "little")
            await socket.send_bytes(first)
        try:
            reader, writer = await asyncio.open_connection(address, port)
        except OSError as error:
            await socket.send_bytes(b"\x01" + f"port {port}: {error.strerror}".encode())
            await socket.close()
            return socket
        sending = asyncio.create_task(_send(reader, socket))
        try:
            async for message in socket:
                if (
                    message.type == aiohttp.WSMsgType.BINARY
                    and message.data[:1] == b"\0"
                ):
                    writer.write(message.data[1:])
                    await writer.drain()
        finally:
            sending.cancel()
            writer.close()
        return socket

    def _pod(self, request: web.Request) -> ServedPod:
        name = (request.match_info["namespace"], request.match_info["pod"])
        for pod in self._list_pods():
            if (pod.namespace, pod.name) == name:
                return pod
        raise web.HTTPNotFound(text=f"pod {name[1]} has no engine that runs")


async def _send(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_READ_BYTES):
            await socket.send_bytes(b"\0" + data)
    await socket.close()
