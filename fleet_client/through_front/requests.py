"""One request to the front and its answer, bounded in size and time.

The server is not trusted. Redirections are not followed, because they would send the
token elsewhere, nothing is decompressed, and the size of an answer is limited.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpx

from fleet_client.errors import CommandFailed, Unreachable
from fleet_client.through_front.access import FrontAccess
from fleet_client.through_front.answers import parsed

_CONNECT_SECONDS = 10.0
# The front waits up to 20 s for the worker that applies a write.
_ANSWER_SECONDS = 60.0
_ANSWER_BYTES_MAX = 32 * 1024 * 1024
# How long a request is retried while the front's limits reject it.
_LIMITED_SECONDS_MAX = 30.0
_PAUSE_SECONDS_MIN = 1
_RETRY_AFTER_DIGITS_MAX = 6
# The front handles 50 concurrent requests of a user. Other commands need some of them.
_AT_ONCE = 16


@dataclass(frozen=True)
class FrontResponse:
    """A response: the HTTP status, and the body, which is None if it is not JSON.

    `retry_after` is in seconds; 0 if the server sends none. `size` is in bytes.
    """

    status: int
    body: Any
    retry_after: int = 0
    size: int = 0

    @property
    def is_success(self) -> bool:
        """Whether the request succeeded."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


class FrontRequests:
    """Sends requests to one front."""

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        """Use an HTTP client that has the token and TLS of the user."""
        self._http, self.url = http, url
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def ask(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        *,
        content: bytes | None = None,
        content_type: str = "",
    ) -> FrontResponse:
        """Send a request.

        Retry for a while if a limit rejects it. Raise `Unreachable` or `CommandFailed`.
        """
        headers = {"Content-Type": content_type} if content_type else {}
        request = self._http.build_request(
            method, path, params=parameters, content=content, headers=headers
        )
        until = time.monotonic() + _LIMITED_SECONDS_MAX
        while True:
            async with self._gate:
                answer = await self._sent(request)
            pause = max(answer.retry_after, _PAUSE_SECONDS_MIN)
            if (
                answer.status != HTTPStatus.TOO_MANY_REQUESTS
                or time.monotonic() + pause > until
            ):
                return answer
            await asyncio.sleep(pause)

    async def _sent(self, request: httpx.Request) -> FrontResponse:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                response = await self._http.send(request, stream=True)
                try:
                    read = await self._read(response)
                    return FrontResponse(
                        response.status_code,
                        parsed(read),
                        _seconds(response.headers.get("Retry-After")),
                        len(read),
                    )
                finally:
                    await response.aclose()
        except (TimeoutError, httpx.TimeoutException) as error:
            raise self._silent(request, error) from error
        except (
            httpx.HTTPError,
            httpx.StreamError,
            httpx.InvalidURL,
            ValueError,
        ) as error:
            raise self._unreachable(request, error) from error

    async def _read(self, response: httpx.Response) -> bytes:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            problem = (
                f"the front at {self.url} compresses its answers although the "
                "request forbids it"
            )
            raise _failed(CommandFailed, response.request, problem, _IS_A_FRONT)
        read = bytearray()
        async for chunk in response.aiter_raw():
            read += chunk
            if len(read) > _ANSWER_BYTES_MAX:
                problem = (
                    f"an answer of the front at {self.url} is larger than "
                    f"{_ANSWER_BYTES_MAX >> 20} MiB and was not read"
                )
                raise _failed(CommandFailed, response.request, problem, _IS_A_FRONT)
        return bytes(read)

    def _silent(self, request: httpx.Request, error: Exception) -> CommandFailed:
        if isinstance(error, httpx.ConnectTimeout):
            return Unreachable(
                f"the front at {self.url} does not answer", next_step=_IS_REACHED
            )
        return _failed(
            Unreachable,
            request,
            f"the front at {self.url} did not answer in time",
            _IS_REACHED,
        )

    def _unreachable(self, request: httpx.Request, error: Exception) -> CommandFailed:
        said = " ".join(str(error).split()) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in said:
            return Unreachable(
                f"the certificate of the front at {self.url} is not trusted",
                details=[said],
                next_step=(
                    "name the authority that signed it with --ca-file, and the front "
                    "by the name in its certificate"
                ),
            )
        problem = f"the front at {self.url} does not answer"
        if isinstance(error, httpx.ConnectError):
            return Unreachable(problem, details=[said], next_step=_IS_REACHED)
        return _failed(Unreachable, request, problem, _IS_REACHED, said)


def _failed(
    failure: type[CommandFailed],
    request: httpx.Request,
    problem: str,
    next_step: str,
    *details: str,
) -> CommandFailed:
    """Return the error for a request that was sent and not answered.

    A write may have been carried out.
    """
    if request.method == "GET" or "dryRun" in request.url.params:
        return failure(problem, details=details, next_step=next_step)
    return failure(
        f"{problem}; it may have carried the request out",
        details=details,
        next_step="check the object with `modelplane get`, and run the command again",
    )


_IS_REACHED = (
    "check the address in --server or MODELPLANE_SERVER, and that the front runs "
    "(`modelplane-front`)"
)
_IS_A_FRONT = (
    "check that --server or MODELPLANE_SERVER names a front, and not another server"
)


def _seconds(text: str | None) -> int:
    written = text or ""
    if len(written) > _RETRY_AFTER_DIGITS_MAX:
        return 0
    return int(written) if written.isascii() and written.isdigit() else 0


def http_client(access: FrontAccess) -> httpx.AsyncClient:
    """Return the HTTP client of a user.

    It ignores proxy settings, because a proxy could receive the token.
    """
    headers = {
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": "modelplane",
    }
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
