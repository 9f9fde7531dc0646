"""Sending of answers, for as long as their client reads them: what nobody reads would fill the memory."""

import asyncio

from aiohttp import web

PART_BYTES = 64 * 1024
WRITE_SECONDS = 30.0
"""How long a client may leave a part of an answer unread: a small answer, 64 KiB of a large one, an event of a watch."""


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
