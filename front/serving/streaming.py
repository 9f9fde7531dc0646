"""A watch as an answer: its lines, for as long as the client reads them and its user may."""

import asyncio
from collections.abc import AsyncIterator, Callable

from aiohttp import web

# A client that has not read a line for so long has to begin anew; it has missed nothing that it could not list.
WRITE_SECONDS = 30.0


async def streamed(request: web.Request, lines: AsyncIterator[bytes]) -> web.StreamResponse:
    """Send the lines; a client goes whenever it likes."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
    await response.prepare(request)
    try:
        async for line in lines:
            async with asyncio.timeout(WRITE_SECONDS):
                await response.write(line)
        await response.write_eof()
    except ConnectionError:
        return response
    except TimeoutError:
        if request.transport:
            request.transport.abort()
    return response


def goes_on(request: web.Request, may: Callable[[], bool]) -> Callable[[], bool]:
    """Give a check whether a watch goes on: its client is there, and its user still may."""

    def check() -> bool:
        transport = request.transport
        return transport is not None and not transport.is_closing() and may()

    return check
