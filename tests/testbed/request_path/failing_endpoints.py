"""Endpoints whose responses the parent process chooses: `failing_endpoints.py ADDRESS`.

A line of its input is `PORT MODE`, and it repeats the line when the mode is in force.
All requests to the port get the response of the mode: a status code; `slow`, which
responds after SLOW_SECONDS; `reset` or `refused`, which end the connection. After
`refused` the port is closed too.
"""

import asyncio
import json
import socket
import struct
import sys

HOST_HEADER = "x-test-host"
"""The header of a response with the host that the endpoint received."""
SLOW_SECONDS = 12
OK = 200


class Endpoints:
    """The endpoints of one address."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._modes: dict[int, str] = {}
        self._servers: dict[int, asyncio.Server] = {}

    async def run(self) -> None:
        """Serve until the input ends."""
        lines = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
        )
        async for line in lines:
            port, mode = line.decode().split()
            await self._set(int(port), mode)
            sys.stdout.write(f"{port} {mode}\n")
            sys.stdout.flush()

    async def _set(self, port: int, mode: str) -> None:
        self._modes[port] = mode
        if mode == "refused":
            self._servers.pop(port).close()
        elif port not in self._servers:
            self._servers[port] = await asyncio.start_server(
                self._connected, self._address, port
            )

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        own = writer.get_extra_info("socket")
        port = own.getsockname()[1]
        try:
            while True:
                told = await self._told(reader, port)
                mode = self._modes[port]
                if mode == "slow":
                    await asyncio.sleep(SLOW_SECONDS)
                elif mode in ("reset", "refused"):
                    linger = struct.pack("ii", 1, 0)
                    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    return
                writer.write(_response(int(mode) if mode.isdigit() else OK, *told))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has disconnected
        finally:
            writer.close()

    async def _told(self, reader: asyncio.StreamReader, port: int) -> tuple[str, bytes]:
        """Read a request; return its host, and the body of a response."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        told = {"port": port, "path": head[0].split()[1], "body": len(body)}
        return headers["host"], json.dumps(told).encode()


def _response(status: int, host: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} Told\r\n{HOST_HEADER}: {host}\r\nretry-after: 30\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


if __name__ == "__main__":
    asyncio.run(Endpoints(sys.argv[1]).run())
