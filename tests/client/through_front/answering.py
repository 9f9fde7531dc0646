"""A server with scripted answers in place of a front, and commands that use it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

Json = dict[str, Any]
DEPLOYMENTS = "/apis/modelplane.ai/v1alpha1/namespaces/ml/modeldeployments"


@dataclass(frozen=True)
class Said:
    """One answer.

    It begins after `seconds`. With `drips` it comes byte by byte and never ends; with
    `breaks` the connection ends instead.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    drips: bool = False
    breaks: bool = False

    @property
    def content(self) -> bytes:
        """Return the body as it is sent."""
        return (
            self.body
            if isinstance(self.body, bytes)
            else json.dumps(self.body).encode()
        )


@dataclass
class Answering:
    """The server and its requests: method, path with query, headers and body; and the
    largest number of concurrent ones.
    """

    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0


Script = Callable[[web.Request, int], Said]


@asynccontextmanager
async def answering(script: Script) -> AsyncIterator[Answering]:
    """Serve on loopback without TLS.

    `script` returns the answer to a request, from the request and its number.
    """
    seen = Answering()

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.asked.append((request.method, request.path_qs))
        seen.headers.append(request.headers.copy())
        seen.bodies.append(await request.read())
        said = script(request, len(seen.asked))
        seen.at_once += 1
        seen.most_at_once = max(seen.most_at_once, seen.at_once)
        await asyncio.sleep(said.seconds)
        seen.at_once -= 1
        if said.breaks and request.transport:
            request.transport.close()
        if said.drips:
            return await dripping(request)
        return web.Response(
            status=said.status,
            body=said.content,
            headers={"Content-Type": "application/json", **said.headers},
        )

    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app)
    await server.start_server()
    seen.url = f"http://127.0.0.1:{server.port}"
    try:
        yield seen
    finally:
        await server.close()


async def dripping(request: web.Request) -> web.StreamResponse:
    """Send a byte every moment until the client disconnects."""
    response = web.StreamResponse()
    await response.prepare(request)
    while request.transport is not None and not request.transport.is_closing():
        await response.write(b" ")
        await asyncio.sleep(0.02)
    return response


def always(said: Said) -> Script:
    """Return a script with the same answer for every request."""
    return lambda _request, _number: said


def a_status(
    code: int, reason: str, message: str = "it says why", **details: Any
) -> Json:
    """Return a Status as the front writes it."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return status | ({"details": details} if details else {})


def not_there(name: str = "qwen", plural: str = "modeldeployments") -> Said:
    """Return the Status of a missing object as the front writes it."""
    return Said(
        404, a_status(404, "NotFound", name=name, group="modelplane.ai", kind=plural)
    )
