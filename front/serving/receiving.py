"""Receives requests: the options of the HTTP server, and bodies within their limits."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, HttpProcessingError

from front.access.request_header import TEXTS_MAX
from front.serving import bodies, errors

_BODY_SECONDS = 30.0
# Used in addition to the headers in which an API server names a user with all groups.
_OTHER_HEADERS_MAX = 128


class _NoRequests(logging.Filter):
    """Logs malformed HTTP requests at the debug level.

    Anybody can send them, and aiohttp would write a traceback for each.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the level of the record; the handler drops records below its level."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.levelno = logging.DEBUG
            record.levelname = logging.getLevelName(logging.DEBUG)
            record.exc_info = record.exc_text = None
        return True


_SERVER_LOG = logging.getLogger("modelplane.front.server")
_SERVER_LOG.addFilter(_NoRequests())
RUNNER_OPTIONS: Mapping[str, Any] = {
    "auto_decompress": False,
    "max_headers": TEXTS_MAX + _OTHER_HEADERS_MAX,
    "logger": _SERVER_LOG,
}
"""Options of the server.

It decompresses no body, not even the body of a rejected request.
"""


async def read(request: web.Request, bytes_max: int = bodies.BYTES_MAX) -> bytes:
    """Read the body of a request.

    Raises `RejectedRequest` for a body that does not arrive, is compressed, or has more
    than `bytes_max`. Signatures cover the bytes as they were sent, and a decompressed
    body could exceed the limit by far.
    """
    encodings = request.headers.getall("Content-Encoding", [])
    if any(each.strip().lower() not in ("", "identity") for each in encodings):
        raise errors.compressed()
    if (request.content_length or 0) > bytes_max:
        raise errors.too_large(bytes_max)
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            while part := await request.content.readany():
                body += part
                if len(body) > bytes_max:
                    raise errors.too_large(bytes_max)
    except TimeoutError:
        raise errors.RejectedRequest(
            408, "Timeout", "the body of the request did not arrive in time"
        ) from None
    except ConnectionError:
        # Nobody reads the response. The server would log the error with a traceback.
        raise errors.bad_request(
            "the connection ended before the body of the request was complete; send it again"
        ) from None
    except (web.RequestPayloadError, BadHttpMessage) as error:
        raise errors.bad_request(
            f"the body of the request is malformed: {str(error)[:256]!r}; send it again"
        ) from None
    return bytes(body)
