"""Forwards ports of this machine to ports of a pod."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from activities.pod_access import PortStream
from client.engines.cluster_access import cluster_failures
from client.engines.pods import EnginePod
from fleet_client.errors import CommandFailed, Refused

_PORT_MAX = 65535
_READ_BYTES = 1 << 16
_LOOPBACK = "127.0.0.1"
_ANSWER_SECONDS = 60.0


class PortPair(NamedTuple):
    """A port of this machine, or 0 for any free one, and a port of the pod."""

    local: int
    remote: int


def port_pair(word: str) -> PortPair:
    """Parse `REMOTE`, `LOCAL:REMOTE` or `:REMOTE`, as kubectl does. Raise `Refused`."""
    local, colon, remote = word.rpartition(":")
    if not colon:
        local = remote
    try:
        pair = PortPair(int(local or 0), int(remote))
    except ValueError:
        pair = PortPair(-1, -1)
    if not (0 <= pair.local <= _PORT_MAX and 0 < pair.remote <= _PORT_MAX):
        raise Refused(
            f"{word!r} is no pair of ports",
            next_step="write REMOTE, LOCAL:REMOTE or :REMOTE, such as 8080:8000",
        )
    return pair


async def forward(pod: EnginePod, pairs: Sequence[PortPair]) -> None:
    """Listen on loopback and forward connections until cancelled.

    Raise `Refused` if a port is taken.
    """
    servers = [await _listen(pod, pair) for pair in pairs]
    try:
        await asyncio.gather(*(server.serve_forever() for server in servers))
    finally:
        for server in servers:
            server.close()


async def _listen(pod: EnginePod, pair: PortPair) -> asyncio.Server:
    async def accept(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            with cluster_failures():
                async with pod.streams.connection(pod.pod, pair.remote) as stream:
                    await _carry(stream, reader, writer)
        except CommandFailed as failure:
            print(f"error: {failure.message}", file=sys.stderr, flush=True)
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(accept, _LOOPBACK, pair.local)
    except OSError as error:
        raise Refused(
            f"port {pair.local} of this machine cannot be used: {error.strerror}",
            next_step=f"write another one, or `:{pair.remote}` for any free port",
        ) from error
    port = server.sockets[0].getsockname()[1]
    print(
        f"Forwarding from {_LOOPBACK}:{port} -> {pair.remote} of {pod.title}",
        flush=True,
    )
    return server


async def _carry(
    stream: PortStream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Carry both directions until either ends."""

    async def send() -> None:
        while data := await reader.read(_READ_BYTES):
            await stream.send(data)
        # A client may close only this direction. The protocol cannot tell the pod so,
        # and its answer may still come.
        await asyncio.sleep(_ANSWER_SECONDS)

    async def receive() -> None:
        async for data in stream.received():
            writer.write(data)
            await writer.drain()

    ends = [asyncio.create_task(send()), asyncio.create_task(receive())]
    try:
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            with suppress(ConnectionError):
                task.result()
    finally:
        for task in ends:
            task.cancel()
    if stream.problem:
        print(f"error: {stream.problem}", file=sys.stderr, flush=True)
