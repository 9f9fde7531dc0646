"""The fake AWS without HTTP: clients of the same process call it as a function.

A handler of botocore's event `before-send` answers in place of the connection. botocore
still signs, serialises and parses the request. Only the socket, its thread and the HTTP
server are left out, which take most of the time of a call.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError

from fakes.aws.fake import FakeAws
from fakes.aws.front import Cut

_SERVED: dict[str, FakeAws] = {}
"""The accounts that answer directly, by the network location of their URL."""


@contextmanager
def direct(aws: FakeAws) -> Iterator[FakeAws]:
    """Serve an account to sessions with the handler `answered` while the block runs."""
    place = urlsplit(aws.url).netloc
    _SERVED[place] = aws
    try:
        yield aws
    finally:
        del _SERVED[place]


def answered(request: AWSPreparedRequest, **_: Any) -> AWSResponse | None:
    """Answer a request to an account that `direct` serves; return None to let botocore send it.

    Register this function for the event `before-send` of a session.
    """
    parts = urlsplit(request.url)
    aws = _SERVED.get(parts.netloc)
    if aws is None:
        return None
    status, headers = "", list[tuple[str, str]]()

    def start(given: str, pairs: list[tuple[str, str]], _error: object = None) -> None:
        nonlocal status
        status = given
        headers.extend(pairs)

    body = request.body or b""
    content = body.encode() if isinstance(body, str) else bytes(body)
    environ = {
        "REQUEST_METHOD": request.method,
        "RAW_URI": parts.path + (f"?{parts.query}" if parts.query else ""),
        "PATH_INFO": unquote(parts.path),
        "QUERY_STRING": parts.query,
        "CONTENT_LENGTH": str(len(content)),
        "SERVER_NAME": parts.hostname,
        "SERVER_PORT": str(parts.port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": parts.netloc,
        "wsgi.url_scheme": parts.scheme,
        "wsgi.input": io.BytesIO(content),
    }
    for name, value in request.headers.items():
        key = name.upper().replace("-", "_")
        text = value.decode() if isinstance(value, bytes) else str(value)
        environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = (
            text
        )
    try:
        chunks = aws.front(environ, start)
    except Cut as error:
        url = request.url
        raise ConnectionClosedError(
            error=error, request=request, endpoint_url=url
        ) from error
    code = int(status.split(maxsplit=1)[0])
    return AWSResponse(request.url, code, dict(headers), _Body(b"".join(chunks)))


class _Body(io.BytesIO):
    """A body as botocore reads it: in pieces."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        """Yield the whole body."""
        yield self.read()
