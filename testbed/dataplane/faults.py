"""An endpoint with chosen failures, which counts its requests.

Tests use it to observe the retries of a gateway. The path of a request is
`.../plan/CASE/STEP-STEP`. The first request of a case gets the first step, the next
request the second, and all further requests the last. A step is a status code; `close`
or `reset`, which end the connection without a response; `slow`, which responds after
SLOW_SECONDS; `stream`, which sends a chunk every CHUNK_SECONDS; or `break`, a stream
that ends in the middle. `.../seen/CASE` lists the received bodies.
"""

import asyncio
import json
import socket
import struct
from collections import defaultdict
from typing import NamedTuple

PORT = 8081
SILENT_PORT = 8082
"""A port on which nothing listens."""
SLOW_SECONDS = 2.0
CHUNK_SECONDS = 0.3
CHUNKS = 6
BODY_BYTES_MAX = 8 << 20


class _FaultRequest(NamedTuple):
    path: list[str]
    body: str


class Faults:
    """The server. It records the received requests by case."""

    def __init__(self) -> None:
        self._seen: defaultdict[str, list[str]] = defaultdict(list)

    async def serve(self, address: str, port: int = PORT) -> None:
        """Serve until cancelled."""
        async with await asyncio.start_server(self._connected, address, port) as server:
            await server.serve_forever()

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await self._answer(await _read(reader), writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has disconnected
        finally:
            writer.close()

    async def _answer(
        self, request: _FaultRequest, writer: asyncio.StreamWriter
    ) -> None:
        kind, case, *steps = (
            request.path[-3:] if "plan" in request.path else request.path[-2:]
        )
        if kind == "seen":
            await _respond(writer, 200, self._seen[case])
            return
        self._seen[case].append(request.body)
        number = len(self._seen[case])
        plan = steps[0].split("-")
        step = plan[min(number, len(plan)) - 1]
        if step == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, linger
            )
        elif step in ("stream", "break"):
            await _stream(
                writer,
                number,
                CHUNKS if step == "stream" else CHUNKS // 2,
                ends=step == "stream",
            )
        elif step != "close":
            await asyncio.sleep(SLOW_SECONDS if step == "slow" else 0)
            await _respond(
                writer,
                200 if step == "slow" else int(step),
                {"number": number, "body": request.body},
            )


async def _read(reader: asyncio.StreamReader) -> _FaultRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:])
    }
    body = await reader.readexactly(
        min(int(headers.get("content-length", 0)), BODY_BYTES_MAX)
    )
    return _FaultRequest(
        head[0].split()[1].partition("?")[0].strip("/").split("/"),
        body.decode("latin-1"),
    )


async def _respond(writer: asyncio.StreamWriter, status: int, document: object) -> None:
    body = json.dumps(document).encode()
    head = (
        f"HTTP/1.1 {status} Told\r\ncontent-type: "
        f"application/json\r\ncontent-length: {len(body)}\r\nconnection: "
        "close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()


async def _stream(
    writer: asyncio.StreamWriter, request: int, chunks: int, *, ends: bool
) -> None:
    writer.write(
        b"HTTP/1.1 200 Told\r\ncontent-type: text/event-stream\r\n"
        b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    )
    for number in range(chunks):
        event = f"data: {request}.{number}\n\n".encode()
        writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        await writer.drain()
        await asyncio.sleep(CHUNK_SECONDS)
    if ends:
        writer.write(b"0\r\n\r\n")
        await writer.drain()
