"""One request to the front and its answer, bounded in size and time.

Whoever answers is not trusted: redirections are not followed, which would send the token elsewhere, nothing is unpacked, and no more is
read than an answer may have.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpx

from client.errors import CommandFailed, Unreachable
from client.through_front.access import FrontAccess
from client.through_front.answers import parsed

_CONNECT_SECONDS = 10.0
# The front waits at most 20 s for the worker that answers a write.
_ANSWER_SECONDS = 60.0
_ANSWER_BYTES_MAX = 32 * 1024 * 1024
# A front that has enough requests of this user is asked again for so long.
_LIMITED_SECONDS_MAX = 30.0
_PAUSE_SECONDS_MIN = 1
_RETRY_AFTER_DIGITS_MAX = 6
# The front answers 50 requests of a user at once; other commands of the user want some of them.
_AT_ONCE = 16


@dataclass(frozen=True)
class Answer:
    """The status of HTTP, and the body: None where it is no JSON. `retry_after`: seconds, 0 if none are named. `size`: bytes."""

    status: int
    body: Any
    retry_after: int = 0
    size: int = 0

    @property
    def is_success(self) -> bool:
        """Whether the request was carried out."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


class FrontRequests:
    """Sends requests to one front."""

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        """`http`: with the token and TLS of the user."""
        self._http, self.url = http, url
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def ask(
        self, method: str, path: str, parameters: Mapping[str, str] | None = None, *, content: bytes | None = None, content_type: str = ""
    ) -> Answer:
        """Send a request; one that a limit refused is sent again while that may help. Raises `Unreachable`, `CommandFailed`."""
        headers = {"Content-Type": content_type} if content_type else {}
        request = self._http.build_request(method, path, params=parameters, content=content, headers=headers)
        until = time.monotonic() + _LIMITED_SECONDS_MAX
        while True:
            async with self._gate:
                answer = await self._sent(request)
            pause = max(answer.retry_after, _PAUSE_SECONDS_MIN)
            if answer.status != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() + pause > until:
                return answer
            await asyncio.sleep(pause)

    async def _sent(self, request: httpx.Request) -> Answer:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                response = await self._http.send(request, stream=True)
                try:
                    read = await self._read(response)
                    return Answer(response.status_code, parsed(read), _seconds(response.headers.get("Retry-After")), len(read))
                finally:
                    await response.aclose()
        except (TimeoutError, httpx.TimeoutException) as error:
            raise self._silent(request, error) from error
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, ValueError) as error:
            raise self._unreachable(request, error) from error

    async def _read(self, response: httpx.Response) -> bytes:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            problem = f"the front at {self.url} compresses its answers, which was not asked for"
            raise _failed(CommandFailed, response.request, problem, _IS_A_FRONT)
        read = bytearray()
        async for chunk in response.aiter_raw():
            read += chunk
            if len(read) > _ANSWER_BYTES_MAX:
                problem = f"an answer of the front at {self.url} is larger than {_ANSWER_BYTES_MAX >> 20} MiB and not read"
                raise _failed(CommandFailed, response.request, problem, _IS_A_FRONT)
        return bytes(read)

    def _silent(self, request: httpx.Request, error: Exception) -> CommandFailed:
        if isinstance(error, httpx.ConnectTimeout):
            return Unreachable(f"the front at {self.url} does not answer", next_step=_IS_REACHED)
        return _failed(Unreachable, request, f"the front at {self.url} did not answer in time", _IS_REACHED)

    def _unreachable(self, request: httpx.Request, error: Exception) -> CommandFailed:
        said = " ".join(str(error).split()) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in said:
            return Unreachable(
                f"the certificate of the front at {self.url} is not trusted",
                details=[said],
                next_step="name the authority that signed it with --ca-file, and the front by the name in its certificate",
            )
        problem = f"the front at {self.url} does not answer"
        if isinstance(error, httpx.ConnectError):
            return Unreachable(problem, details=[said], next_step=_IS_REACHED)
        return _failed(Unreachable, request, problem, _IS_REACHED, said)


def _failed(failure: type[CommandFailed], request: httpx.Request, problem: str, next_step: str, *details: str) -> CommandFailed:
    """Make the error for a request whose answer is not known, although it was sent: what it writes may be written."""
    if request.method == "GET" or "dryRun" in request.url.params:
        return failure(problem, details=details, next_step=next_step)
    return failure(
        f"{problem}; it may have carried the request out",
        details=details,
        next_step="see with `modelplane get` what there is, and run the command again",
    )


_IS_REACHED = "check the address in --server or MODELPLANE_SERVER, and that the front runs (`modelplane-front`)"
_IS_A_FRONT = "check that --server or MODELPLANE_SERVER names a front, and not another server"


def _seconds(text: str | None) -> int:
    written = text or ""
    return int(written) if written.isascii() and written.isdigit() and len(written) <= _RETRY_AFTER_DIGITS_MAX else 0


def http_client(access: FrontAccess) -> httpx.AsyncClient:
    """Make the client of a user. Settings of proxies are not read: they would decide who gets the token."""
    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "modelplane"}
    if access.token:
        headers["Authorization"] = f"Bearer {access.token}"
    return httpx.AsyncClient(
        base_url=access.url,
        headers=headers,
        verify=access.tls,
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
    )
