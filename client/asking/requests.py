"""One request to a service, and its failures as `CommandFailed`."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from urllib.parse import unquote

import httpx

from api_types.payloads.limits import shortened
from client.asking.service import ServiceAddress
from fleet_client.errors import CommandFailed, NotFound, Refused, Unreachable

CONNECT_SECONDS = 10.0
ANSWER_BYTES_MAX = 16 << 20
"""The longest answer that is read as a whole."""
_QUOTED_BYTES_MAX = 1000
# How often a path may be percent-encoded. No server needs more than one level.
_DECODED_MAX = 3
# Headers of the connection and its framing. A client that sets them breaks the request.
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def checked_path(path: str) -> str:
    """Return a path below a service, beginning with a slash.

    Raise `Refused` for a path that leaves the service.
    """
    written = path.partition("?")[0]
    # Decode the path repeatedly, because each server on its way may decode it once.
    decoded = written
    for _ in range(_DECODED_MAX):
        decoded = unquote(decoded)
    segments = decoded.replace("\\", "/").split("/")
    leads_elsewhere = (
        "://" in decoded
        or ".." in segments
        or "." in segments
        or unquote(decoded) != decoded
    )
    if leads_elsewhere or any(
        each.isspace() or not each.isprintable() for each in path
    ):
        raise Refused(
            f"{path!r} is not a path below the service",
            next_step="write it as /v1/models",
        )
    return path if path.startswith("/") else f"/{path}"


def read_headers(written: list[str]) -> dict[str, str]:
    """Parse headers written as `Name: value`. Raise `Refused` with all problems."""
    headers, problems = dict[str, str](), list[str]()
    for each in written:
        name, colon, value = each.partition(":")
        if not colon or not name.strip():
            problems.append(f"{each!r} is not written as 'Name: value'")
        elif name.strip().lower() in _HOP_BY_HOP:
            problems.append(
                f"{name.strip()} belongs to the connection and cannot be set"
            )
        else:
            headers[name.strip()] = value.strip()
    if problems:
        raise Refused(
            "these headers cannot be sent",
            details=problems,
            next_step="fix them; nothing was sent",
        )
    return headers


@asynccontextmanager
async def requested(
    service: ServiceAddress,
    method: str,
    path: str,
    *,
    seconds: float,
    json: object = None,
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[httpx.Response]:
    """Send a request and yield the response before its body is read.

    Raise `Unreachable` if the gateway does not answer, `CommandFailed` for every other
    failure.
    """
    url, next_step = (
        f"{service.url}{path}",
        f"`modelplane describe {service.target.command}` shows the path of a request",
    )
    timeout = httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))
    try:
        # Ignore proxy settings: the gateway is in the network of its users.
        async with (
            httpx.AsyncClient(timeout=timeout, trust_env=False) as http,
            http.stream(
                method, url, json=json, content=content, headers=headers
            ) as response,
        ):
            yield response
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise Unreachable(
            f"the gateway at {url} does not answer: {error or type(error).__name__}",
            next_step=next_step,
        ) from error
    except httpx.TimeoutException as error:
        raise CommandFailed(
            f"no answer from {url} within {seconds:g} s",
            next_step=f"{next_step}; or give a longer --timeout",
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CommandFailed(
            f"the request to {url} failed: {error or type(error).__name__}",
            next_step=next_step,
        ) from error


async def raise_for_status(service: ServiceAddress, response: httpx.Response) -> None:
    """Raise for an error status.

    `NotFound` means that the gateway has no route. Every other error is a
    `CommandFailed`.
    """
    if response.is_success:
        return
    said = shortened((await _beginning(response)).strip(), _QUOTED_BYTES_MAX)
    next_step = f"`modelplane describe {service.target.command}` shows what is ready"
    by_gateway = "x-modelplane-endpoint" not in response.headers
    if response.status_code == HTTPStatus.NOT_FOUND and by_gateway:
        raise NotFound(
            f"the gateway has no route for {service.target.title}",
            details=[said] if said else [],
            next_step=next_step,
        )
    if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE and by_gateway:
        raise CommandFailed(
            f"no endpoint of {service.target.title} is ready",
            details=[said] if said else [],
            next_step=next_step,
        )
    raise CommandFailed(
        f"{service.responder(response)} answered {response.status_code} {response.reason_phrase}",
        details=said.splitlines(),
        next_step="fix the request, or read the model's log",
    )


async def read_whole(response: httpx.Response) -> bytes:
    """Read the body of a response. Raise `CommandFailed` if it is too long."""
    read = bytearray()
    async for chunk in response.aiter_bytes():
        read += chunk
        if len(read) > ANSWER_BYTES_MAX:
            raise CommandFailed(
                f"the answer is longer than {ANSWER_BYTES_MAX >> 20} MiB and was not read",
                next_step="use `modelplane curl` for such answers",
            )
    return bytes(read)


async def _beginning(response: httpx.Response) -> str:
    read = bytearray()
    async for chunk in response.aiter_bytes():
        read += chunk
        if len(read) > _QUOTED_BYTES_MAX:
            break
    return bytes(read).decode(errors="replace")
