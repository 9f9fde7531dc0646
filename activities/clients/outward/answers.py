"""Read responses up to a size limit.

The limit counts bytes after decompression, so that a small response cannot expand into
a large one.
"""

import json
import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import aiohttp

REDIRECTS = frozenset(
    {
        HTTPStatus.MOVED_PERMANENTLY,
        HTTPStatus.FOUND,
        HTTPStatus.SEE_OTHER,
        HTTPStatus.TEMPORARY_REDIRECT,
        HTTPStatus.PERMANENT_REDIRECT,
    }
)
_MIB = 1 << 20
# JSON escapes of halves of surrogate pairs.
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


class TooLarge(Exception):
    """A response, or a line of it, exceeds the size limit, which the message states."""

    def __init__(self, size_max: int) -> None:
        size = (
            f"{size_max // _MIB} MiB" if size_max >= _MIB else f"{size_max >> 10} KiB"
        )
        super().__init__(f"larger than {size}")


async def read_body(response: aiohttp.ClientResponse, size_max: int) -> bytes:
    """Read the whole body. Raises TooLarge and the errors of aiohttp."""
    if (response.content_length or 0) > size_max:
        raise TooLarge(size_max)
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > size_max:
            raise TooLarge(size_max)
    return bytes(body)


async def read_lines(
    response: aiohttp.ClientResponse, size_max: int
) -> AsyncIterator[bytes]:
    """Yield the lines of the body; the last line may lack its line break.

    Raises TooLarge and the errors of aiohttp.
    """
    line = bytearray()
    async for chunk in response.content.iter_any():
        head, *others = chunk.split(b"\n")
        line += head
        for part in others:
            if len(line) > size_max:
                break
            yield bytes(line)
            line = bytearray(part)
        if len(line) > size_max:
            raise TooLarge(size_max)
    if line:
        yield bytes(line)


def read_object(text: bytes | str) -> dict[str, Any]:
    """Return a parsed JSON object. Raises ValueError, also for too deep nesting."""
    try:
        found = json.loads(text)
        raw = text if isinstance(text, bytes) else text.encode(errors="replace")
        if _HALF.search(raw):
            # A lone surrogate is not a character: it could be neither stored nor sent.
            fixed = json.dumps(found, ensure_ascii=False).encode(errors="replace")
            found = json.loads(fixed)
    except RecursionError:
        raise ValueError("JSON that is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 -- the text is invalid
    return found
