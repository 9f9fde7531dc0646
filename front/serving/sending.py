"""Sending of answers, for as long as their client reads them: what nobody reads would fill the memory.

What is large is made and sent in parts, and others are answered between.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TypeVar

from aiohttp import web

PART_BYTES = 64 * 1024
WRITE_SECONDS = 30.0
"""How long a client may leave a part of an answer unread: a small answer, 64 KiB of a large one, an event of a watch."""
BYTES_PER_SECOND = 256 * 1024
"""How fast a client has to read a large answer, beyond `WRITE_SECONDS`: whoever reads a little all the time would keep it for hours."""
TURN_SECONDS = 0.005
"""How long one answer is worked on before others are."""
_BEGUN = web.RequestKey("begun", web.StreamResponse)
ItemT = TypeVar("ItemT")


class InParts(web.StreamResponse):
    """An answer of many parts: the whole of it is in the memory of none."""

    def __init__(self, parts: Iterable[bytes], content_type: str) -> None:
        """Take the parts of the body, in order: those that other answers have too, or parts that are made as they are sent."""
        super().__init__(headers={"Content-Type": content_type})
        self.parts = parts
        if isinstance(parts, Sequence):
            self.content_length = sum(map(len, parts))


async def in_turns(items: Iterable[ItemT]) -> AsyncIterator[ItemT]:
    """Give items as they are made and used, and let others be answered whenever that has taken a few milliseconds."""
    end = time.monotonic() + TURN_SECONDS
    for item in items:
        yield item
        if time.monotonic() >= end:
            await asyncio.sleep(0)
            end = time.monotonic() + TURN_SECONDS


async def note_begun(request: web.Request, response: web.StreamResponse) -> None:
    """Note that an answer is being sent, before its first byte is."""
    request[_BEGUN] = response


def ended(request: web.Request) -> web.StreamResponse | None:
    """End the connection if an answer has begun, and give that one: another after it would be read as its rest."""
    begun = request.get(_BEGUN)
    if begun is not None and request.transport:
        request.transport.abort()
    return begun


async def sent(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Send an answer, unless that is done; gives it. The connection of a client that does not read is ended."""
    if response.prepared:
        return response
    large = response if request.method == "HEAD" else _in_parts(response)
    try:
        if isinstance(large, InParts) and request.method != "HEAD":
            await large.prepare(request)
            begun, length = asyncio.get_running_loop().time(), large.content_length or 0
            async with asyncio.timeout(WRITE_SECONDS + length / BYTES_PER_SECOND) as whole:
                for part in _packed(large.parts):
                    async with asyncio.timeout(WRITE_SECONDS):
                        await large.write(part)
                    # A client that reads fast never waits.
                    await asyncio.sleep(0)
                    if large.content_length is None:
                        # How long it is shows while it is made.
                        length += len(part)
                        whole.reschedule(begun + WRITE_SECONDS + length / BYTES_PER_SECOND)
        async with asyncio.timeout(WRITE_SECONDS):
            await large.prepare(request)
            await large.write_eof()
    except ConnectionError:
        return large
    except TimeoutError:
        large.force_close()
        if request.transport:
            request.transport.abort()
    return large


def _in_parts(response: web.StreamResponse) -> web.StreamResponse:
    """Give a large answer as one in parts."""
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, bytes) or len(body) <= PART_BYTES:
        return response
    large = InParts((body,), "")
    large.set_status(response.status)
    large.headers.update(response.headers)
    return large


def _packed(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Give the same bytes in parts of fair size."""
    packed = bytearray()
    for part in parts:
        for start in range(0, len(part), PART_BYTES):
            packed += part[start : start + PART_BYTES]
            if len(packed) >= PART_BYTES:
                yield bytes(packed)
                packed.clear()
    if packed:
        yield bytes(packed)
