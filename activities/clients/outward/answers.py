"""Read answers within a bound: what is counted is the text after decompression, so that a small answer cannot become a large one here."""

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
# How JSON escapes halves of surrogate pairs.
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


class TooLarge(Exception):
    """An answer, or a line of it, has more bytes than are read. The text says how many those are."""

    def __init__(self, size_max: int) -> None:
        size = f"{size_max // _MIB} MiB" if size_max >= _MIB else f"{size_max >> 10} KiB"
        super().__init__(f"larger than {size}")


async def read_body(response: aiohttp.ClientResponse, size_max: int) -> bytes:
    """Read the whole body. Raises TooLarge, and what aiohttp raises."""
    if (response.content_length or 0) > size_max:
        raise TooLarge(size_max)
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > size_max:
            raise TooLarge(size_max)
    return bytes(body)


async def read_lines(response: aiohttp.ClientResponse, size_max: int) -> AsyncIterator[bytes]:
    """Give the lines of the body one by one; the last one may lack its end. Raises TooLarge, and what aiohttp raises."""
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
    """Read a JSON object. Raises ValueError, also for one that is nested too deep."""
    try:
        found = json.loads(text)
        if _HALF.search(text if isinstance(text, bytes) else text.encode(errors="replace")):
            # Half of a pair is no character: it could be neither stored nor sent.
            found = json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
    except RecursionError:
        raise ValueError("JSON that is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 -- the text is wrong, not our use of a type
    return found
