"""A proxy in front of an API server, to cut it off like a network failure."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit


class TcpProxy:
    """Forwards connections.

    `refuse` breaks them and accepts no new one. `stall` keeps all open and forwards
    nothing.
    """

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._open = asyncio.Event()
        self._open.set()
        self._refusing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator["TcpProxy"]:
        listener = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            listener.close()
            self.refuse()
            self._open.set()
            await asyncio.sleep(0)

    def refuse(self) -> None:
        self._refusing = True
        for writer in self._writers:
            writer.transport.abort()

    def stall(self) -> None:
        self._open.clear()

    def restore(self) -> None:
        self._refusing = False
        self._open.set()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        inner_reader, inner_writer = await asyncio.open_connection(
            self._host, self._port
        )
        self._writers |= {writer, inner_writer}
        pumps = [
            asyncio.create_task(self._pump(reader, inner_writer)),
            asyncio.create_task(self._pump(inner_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for each in (writer, inner_writer):
                each.transport.abort()
                self._writers.discard(each)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
