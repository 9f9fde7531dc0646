"""Builds responses, and sends them within time limits.

The limits keep unread responses from filling the memory. Large responses are produced and
sent in parts, so that other requests are served in between.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from aiohttp import web

from front.serving.formats.negotiation import JSON

_WARNING_BYTES_MAX = 4096
PART_BYTES = 64 * 1024
WRITE_SECONDS = 30.0
"""The time limit for a client to read one part.

A part is a small response, 64 KiB of a large one, or one event of a watch.
"""
BYTES_PER_SECOND = 256 * 1024
"""The minimum speed for reading a large response, after `WRITE_SECONDS`.

Otherwise a client that reads a little at a time could keep it for hours.
"""
TURN_SECONDS = 0.005
"""How long work on one response may run before it yields to other requests."""
_BEGUN = web.RequestKey("begun", web.StreamResponse)
ItemT = TypeVar("ItemT")


class InParts(web.StreamResponse):
    """A response in parts, which need not be in memory at the same time."""

    def __init__(self, parts: Iterable[bytes], content_type: str) -> None:
        """Set the parts of the body, in order.

        They are either shared with other responses, or produced while they are sent.
        """
        super().__init__(headers={"Content-Type": content_type})
        self.parts = parts
        if isinstance(parts, Sequence):
            self.content_length = sum(map(len, parts))


def encoded(tree: Any) -> bytes:
    """Return a document as JSON."""
    return json.dumps(tree, separators=(",", ":")).encode()


def json_response(
    tree: Any,
    status: int = 200,
    warnings: tuple[str, ...] = (),
    content_type: str = JSON,
) -> web.Response:
    response = web.Response(
        status=status, body=encoded(tree), headers={"Content-Type": content_type}
    )
    for warning in warnings[:20]:
        text = warning.encode("ascii", "replace").decode()[:_WARNING_BYTES_MAX]
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


async def in_turns(items: Iterable[ItemT]) -> AsyncIterator[ItemT]:
    """Yield the items, and let other tasks run every few milliseconds."""
    end = time.monotonic() + TURN_SECONDS
    for item in items:
        yield item
        if time.monotonic() >= end:
            await asyncio.sleep(0)
            end = time.monotonic() + TURN_SECONDS


async def note_begun(request: web.Request, response: web.StreamResponse) -> None:
    """Record that a response is being sent, before its first byte."""
    request[_BEGUN] = response


def ended(request: web.Request) -> web.StreamResponse | None:
    """Abort the connection if a response has begun; return that response.

    The client would read a second response as the rest of the first.
    """
    begun = request.get(_BEGUN)
    if begun is not None and request.transport:
        request.transport.abort()
    return begun


async def sent(
    request: web.Request, response: web.StreamResponse
) -> web.StreamResponse:
    """Send a response unless it is already sent; return it.

    The connection is aborted if the client does not read.
    """
    if response.prepared:
        return response
    large = response if request.method == "HEAD" else _in_parts(response)
    try:
        if isinstance(large, InParts) and request.method != "HEAD":
            await large.prepare(request)
            begun, length = asyncio.get_running_loop().time(), large.content_length or 0
            async with asyncio.timeout(
                WRITE_SECONDS + length / BYTES_PER_SECOND
            ) as whole:
                for part in _packed(large.parts):
                    async with asyncio.timeout(WRITE_SECONDS):
                        await large.write(part)
                    # Writing to a fast client never suspends, so yield to other tasks
                    # here.
                    await asyncio.sleep(0)
                    if large.content_length is None:
                        # The length is only known as the parts are produced.
                        length += len(part)
                        whole.reschedule(
                            begun + WRITE_SECONDS + length / BYTES_PER_SECOND
                        )
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
    """Return a large response as a response in parts."""
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, bytes) or len(body) <= PART_BYTES:
        return response
    large = InParts((body,), "")
    large.set_status(response.status)
    large.headers.update(response.headers)
    return large


def _packed(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Return the same bytes in parts of similar size."""
    packed = bytearray()
    for part in parts:
        for start in range(0, len(part), PART_BYTES):
            packed += part[start : start + PART_BYTES]
            if len(packed) >= PART_BYTES:
                yield bytes(packed)
                packed.clear()
    if packed:
        yield bytes(packed)
