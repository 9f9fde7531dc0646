"""Sending of answers, for as long as their client reads them: what nobody reads would fill the memory."""

import asyncio

from aiohttp import web

PART_BYTES = 64 * 1024
WRITE_SECONDS = 30.0
"""How long a client may leave a part of an answer unread: a small answer, 64 KiB of a large one, an event of a watch."""
BYTES_PER_SECOND = 256 * 1024
"""How fast a client has to read a large answer, beyond `WRITE_SECONDS`: whoever reads a little all the time would keep it for hours."""
_BEGUN = web.RequestKey("begun", web.StreamResponse)


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
    body = response.body if isinstance(response, web.Response) else None
    in_parts = isinstance(body, bytes) and len(body) > PART_BYTES and request.method != "HEAD"
    large = web.StreamResponse(status=response.status, headers=response.headers) if in_parts else response
    try:
        if in_parts and isinstance(body, bytes):
            large.content_length = len(body)
            await large.prepare(request)
            async with asyncio.timeout(WRITE_SECONDS + len(body) / BYTES_PER_SECOND):
                for start in range(0, len(body), PART_BYTES):
                    async with asyncio.timeout(WRITE_SECONDS):
                        await large.write(body[start : start + PART_BYTES])
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
