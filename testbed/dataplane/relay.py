"""Carry connections between this machine and the data plane's network namespace: `python -m testbed.dataplane.relay CONFIG`.

A namespace has its own loopback, so neither side can dial the other; but a Unix socket is a file, and both see the same files. One relay
on each side turns a TCP port into such a socket and back.

CONFIG is a JSON list of {listen, dial}; an end is "tcp:HOST:PORT" or "unix:PATH", the path relative to the working folder.
"""

import asyncio
import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.documents import read_json

CHUNK_BYTES = 1 << 16


async def relay(pairs: Sequence[Mapping[str, str]]) -> None:
    """Serve every pair until cancelled."""
    for kind, _, address in (pair["listen"].partition(":") for pair in pairs):
        if kind == "unix":
            _clear(Path(address))
    servers = [await _listen(pair["listen"], pair["dial"]) for pair in pairs]
    try:
        await asyncio.gather(*(server.serve_forever() for server in servers))
    finally:
        for server in servers:
            server.close()


def _clear(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)  # left by a relay that was killed


async def _listen(end: str, dial: str) -> asyncio.Server:
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Kept here: once one side has gone, nothing else refers to the task, and Python may remove it before the other side has all.
        connection = asyncio.create_task(carry(reader, writer))
        connections.add(connection)
        connection.add_done_callback(connections.discard)

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await _dial(dial)
        except OSError:
            # Nothing listens there (yet): the caller sees a closed connection, as it would without a relay.
            writer.close()
            return
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        for each in (writer, far_writer):
            each.close()

    kind, _, address = end.partition(":")
    if kind == "unix":
        return await asyncio.start_unix_server(accept, address)
    host, _, port = address.rpartition(":")
    return await asyncio.start_server(accept, host, int(port))


async def _dial(end: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    kind, _, address = end.partition(":")
    if kind == "unix":
        return await asyncio.open_unix_connection(address)
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # Either side may vanish at any moment; then this direction is over, which the other one learns from the end of its stream.
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


if __name__ == "__main__":
    asyncio.run(relay(read_json(Path(sys.argv[1]))))
