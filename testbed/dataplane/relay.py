"""Relays into the data plane: `python -m testbed.dataplane.relay CONFIG`.

A network namespace has its own loopback, so neither side can dial the other. A Unix
socket is a file, which both sides can open. One relay on each side connects a TCP port
with such a socket.

CONFIG is a JSON list of {listen, dial}. An end is "tcp:HOST:PORT" or "unix:PATH", with
the path relative to the working folder.
"""

import asyncio
import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.documents import read_json

CHUNK_BYTES = 1 << 16
BACKLOG = 4096
"""A Unix socket refuses connections at once when its backlog is full."""


async def relay(pairs: Sequence[Mapping[str, str]]) -> None:
    """Serve every pair until cancelled."""
    for kind, _, address in (pair["listen"].partition(":") for pair in pairs):
        if kind == "unix":
            clear_socket(Path(address))
    servers = [await _listen(pair["listen"], pair["dial"]) for pair in pairs]
    try:
        await asyncio.gather(*(server.serve_forever() for server in servers))
    finally:
        for server in servers:
            server.close()


def clear_socket(path: Path) -> None:
    """Make room for a Unix socket."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)  # a killed relay left this socket behind


async def _listen(end: str, dial: str) -> asyncio.Server:
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Keep a reference to the task. After one side has closed, nothing else refers
        # to it, and Python might collect it before the other side has received all
        # data.
        connection = asyncio.create_task(carry(reader, writer))
        connections.add(connection)
        connection.add_done_callback(connections.discard)

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await _dial(dial)
        except OSError:
            # Nothing listens on the other side (yet). The caller sees a closed
            # connection, as without a relay.
            writer.close()
            return
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
        for each in (writer, far_writer):
            each.close()

    kind, _, address = end.partition(":")
    if kind == "unix":
        return await asyncio.start_unix_server(accept, address, backlog=BACKLOG)
    host, _, port = address.rpartition(":")
    return await asyncio.start_server(accept, host, int(port), backlog=BACKLOG)


async def _dial(end: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    kind, _, address = end.partition(":")
    if kind == "unix":
        return await asyncio.open_unix_connection(address)
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # Either side may disconnect at any moment. This direction then ends, and the end of
    # the stream informs the other side.
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


if __name__ == "__main__":
    asyncio.run(relay(read_json(Path(sys.argv[1]))))
