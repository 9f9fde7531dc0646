"""Commands and logs of pods over the protocols of an API server.

A scripted server shows the versions of the protocol. The testbed's real API server has
its own test (`tests/testbed/dataplane/test_kubelet_api.py`).
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from activities.clients.kubernetes.kubeconfig import ApiServerAccess
from activities.clients.kubernetes.pod_streams import (
    STDERR,
    STDOUT,
    CommandStream,
    PodId,
    PodStreams,
)
from activities.clients.kubernetes.session import Session
from api_types.errors import InvalidInput, PermissionDenied

POD = PodId("ml", "engine-0")
V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
SUCCESS = {"status": "Success"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def pods_of(handler: Handler) -> AsyncIterator[PodStreams]:
    """Serve all requests by a handler."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    server = TestServer(app)
    await server.start_server()
    address = f"http://127.0.0.1:{server.port}"
    session = Session("oslo", ApiServerAccess(server=address, allow_loopback=True))
    try:
        yield PodStreams(session)
    finally:
        await session.close()
        await server.close()


def an_exec(
    protocol: str, seen: list[str | bytes], *sent: tuple[int, bytes]
) -> Handler:
    """Run no command: send messages, and record the query and three messages."""

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.path_qs)
        socket = web.WebSocketResponse(protocols=[protocol])
        await socket.prepare(request)
        seen.extend([(await socket.receive_bytes()) for _ in range(3)])
        for channel, data in sent:
            await socket.send_bytes(bytes((channel,)) + data)
        await socket.close()
        return socket

    return answer


async def finished(stream: CommandStream) -> list[tuple[int, bytes]]:
    return [each async for each in stream.output()]


FAILED = {
    "status": "Failure",
    "message": "command terminated with exit code 3",
    "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
}
NOT_RUN = {"status": "Failure", "message": "exec: no such file"}


@pytest.mark.parametrize(
    ("status", "code", "problem"),
    [
        (SUCCESS, 0, ""),
        (FAILED, 3, ""),
        (NOT_RUN, 1, "exec: no such file"),
        (None, 1, "the connection ended before the command"),
    ],
    ids=["success", "an exit code", "not run", "lost"],
)
async def test_a_command_has_two_outputs_and_an_exit_code(
    status: dict[str, object] | None, code: int, problem: str
) -> None:
    seen: list[str | bytes] = []
    sent = [(STDOUT, b"out"), (STDERR, b"err")]
    ended = [] if status is None else [(3, json.dumps(status).encode())]
    async with (
        pods_of(an_exec(V5, seen, (STDOUT, b""), *sent, *ended)) as pods,
        pods.command(POD, "main", ["ls", "a b"], stdin=True, tty=False) as stream,
    ):
        await stream.resize(80, 24)
        await stream.send(b"in")
        await stream.end_input()
        assert await finished(stream) == sent
        assert (stream.exit_code, stream.problem) == (code, problem)
    assert seen == [
        (
            "/api/v1/namespaces/ml/pods/engine-0/exec?container=main&stdin=true"
            "&stdout=true&stderr=true&tty=false&command=ls&command=a+b"
        ),
        b'\x04{"Width": 80, "Height": 24}',
        b"\x00in",
        b"\xff\x00",
    ]


async def test_the_input_of_an_older_server_cannot_be_ended() -> None:
    seen: list[str | bytes] = []
    async with (
        pods_of(an_exec(V4, seen, (3, json.dumps(SUCCESS).encode()))) as pods,
        pods.command(POD, "main", ["cat"], stdin=True, tty=False) as stream,
    ):
        await stream.send(b"1")
        await stream.end_input()
        await stream.send(b"2")
        await stream.send(b"3")
        assert await finished(stream) == []
    assert seen[1:] == [b"\x001", b"\x002", b"\x003"]


async def forbidden(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"message": "no exec for you"}, status=403)


async def test_a_refusal_has_the_words_of_the_api_server() -> None:
    async with pods_of(forbidden) as pods:
        with pytest.raises(PermissionDenied, match="no exec for you"):
            async with pods.command(POD, "main", ["ls"], stdin=False, tty=False):
                pass
        with pytest.raises(PermissionDenied, match="no exec for you"):
            async with pods.connection(POD, 8000):
                pass
        with pytest.raises(PermissionDenied, match="read the log of pod engine-0: no"):
            await anext(pods.logs(POD, {}))


async def test_a_log_arrives_while_it_is_written() -> None:
    going_on = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.path_qs == "/api/v1/namespaces/ml/pods/engine-0/log?follow=true"
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await going_on.wait()
        await response.write(b"second\n")
        return response

    async with pods_of(answer) as pods:
        log = pods.logs(POD, {"follow": "true"})
        assert await anext(log) == b"first\n"
        going_on.set()
        assert [part async for part in log] == [b"second\n"]


async def test_a_port_has_an_error_or_the_bytes_of_the_pod() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=[V4])
        await socket.prepare(request)
        await socket.send_bytes(b"\x00\x40\x1f")
        await socket.send_bytes(b"\x01\x40\x1f")
        if request.query["ports"] == "8000":
            await socket.send_bytes(
                b"\x00" + (await socket.receive_bytes())[1:].upper()
            )
        else:
            await socket.send_bytes(b"\x01connection refused")
        await socket.close()
        return socket

    async with pods_of(answer) as pods:
        async with pods.connection(POD, 8000) as stream:
            await stream.send(b"hello")
            assert [part async for part in stream.received()] == [b"HELLO"]
            assert not stream.problem
        async with pods.connection(POD, 9000) as stream:
            assert [part async for part in stream.received()] == []
            assert stream.problem == "connection refused"


async def test_a_pod_that_does_not_run_is_an_error_about_the_request() -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"message": "it waits to start"}, status=400)

    async with pods_of(answer) as pods:
        with pytest.raises(InvalidInput, match="it waits to start"):
            await anext(pods.logs(POD, {}))
