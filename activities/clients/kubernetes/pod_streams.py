"""The logs, commands and ports of pods, through the API server of their cluster.

Commands and ports use Kubernetes' WebSocket protocols: each message begins with one
byte, the number of its channel. Version 5 of the protocol can also end the standard
input of a command, which version 4 cannot.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import aiohttp

from activities.clients.kubernetes.api_failures import failure
from activities.clients.kubernetes.session import Response, Session

_V5, _V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, _STATUS, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_PORT_BYTES = 2
_UNKNOWN_EXIT_CODE = 1


class PodId(NamedTuple):
    namespace: str
    name: str


class CommandStream:
    """The streams of a running command."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.exit_code = _UNKNOWN_EXIT_CODE
        """The exit code, after `output` has ended."""
        self.problem = ""
        """Why the command did not run to its end, after `output` has ended."""

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield STDOUT or STDERR and the bytes, until the command has ended."""
        self.problem = "the connection ended before the command"
        async for channel, data in _messages(self._socket):
            if channel in (STDOUT, STDERR):
                if data:  # the first message of an API server is empty
                    yield channel, data
            elif channel == _STATUS:
                self.exit_code, self.problem = _result(data)
                return

    async def send(self, data: bytes) -> None:
        """Write to the standard input of the command."""
        await self._socket.send_bytes(bytes((STDIN,)) + data)

    async def end_input(self) -> None:
        """End the standard input. An old server cannot do this, and nothing happens."""
        if self._socket.protocol == _V5:
            await self._socket.send_bytes(bytes((_CLOSE, STDIN)))

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of the command's terminal, in characters."""
        size = json.dumps({"Width": columns, "Height": rows}).encode()
        await self._socket.send_bytes(bytes((_RESIZE,)) + size)


class PortStream:
    """One connection to a port of a pod."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.problem = ""
        """Why the connection failed, after `received` has ended; empty if it ended."""

    async def received(self) -> AsyncIterator[bytes]:
        """Yield what the pod sends, until it closes the connection."""
        started = set[int]()
        async for channel, data in _messages(self._socket):
            if channel not in started:
                # The first message of each channel only repeats the port.
                started.add(channel)
                data = data[_PORT_BYTES:]  # noqa: PLW2901 - the rest of the message
            if not data:
                continue
            if channel == 0:
                yield data
            else:
                self.problem = data.decode(errors="replace")
                return

    async def send(self, data: bytes) -> None:
        await self._socket.send_bytes(bytes((0,)) + data)


class PodStreams:
    """The pods of one cluster. Methods raise the errors of `ClusterApi`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def logs(
        self, pod: PodId, options: Mapping[str, str]
    ) -> AsyncIterator[bytes]:
        """Yield the log of a container. `options` are query parameters of Kubernetes."""
        path = _path(pod, "log", urlencode(options))
        async for part in self._session.chunks(path):
            if isinstance(part, Response):
                raise self._refused(part, f"read the log of pod {pod.name}")
            yield part

    @asynccontextmanager
    async def command(
        self,
        pod: PodId,
        container: str,
        command: Sequence[str],
        *,
        stdin: bool,
        tty: bool,
    ) -> AsyncIterator[CommandStream]:
        """Run a command in a container. With `tty`, STDOUT has both outputs."""
        query = [
            ("container", container),
            ("stdin", str(stdin).lower()),
            ("stdout", "true"),
            ("stderr", str(not tty).lower()),
            ("tty", str(tty).lower()),
            *(("command", word) for word in command),
        ]
        path = _path(pod, "exec", urlencode(query))
        async with self._session.websocket(path, (_V5, _V4)) as socket:
            if isinstance(socket, Response):
                raise self._refused(socket, f"run a command in pod {pod.name}")
            yield CommandStream(socket)

    @asynccontextmanager
    async def connection(self, pod: PodId, port: int) -> AsyncIterator[PortStream]:
        """Connect to a port of a pod."""
        path = _path(pod, "portforward", urlencode({"ports": port}))
        async with self._session.websocket(path, (_V4,)) as socket:
            if isinstance(socket, Response):
                raise self._refused(socket, f"connect to port {port} of pod {pod.name}")
            yield PortStream(socket)

    def _refused(self, answer: Response, doing: str) -> Exception:
        return failure(
            answer.status,
            answer.body,
            answer.headers,
            self._session.cluster,
            doing,
            identity=self._session.identity,
        )


def _path(pod: PodId, subresource: str, query: str) -> str:
    where = f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}"
    return f"{where}/{subresource}?{query}"


async def _messages(
    socket: aiohttp.ClientWebSocketResponse,
) -> AsyncIterator[tuple[int, bytes]]:
    async for message in socket:
        if message.type == aiohttp.WSMsgType.BINARY and message.data:
            yield message.data[0], message.data[1:]


def _result(data: bytes) -> tuple[int, str]:
    """Return the exit code in a Status, and the problem of a command that did not run."""
    status: dict[str, Any] = json.loads(data)
    if status.get("status") == "Success":
        return 0, ""
    causes = (status.get("details") or {}).get("causes") or ()
    for cause in causes:
        if cause.get("reason") == "ExitCode":
            return int(cause.get("message", _UNKNOWN_EXIT_CODE)), ""
    return _UNKNOWN_EXIT_CODE, str(status.get("message") or "the command failed")
