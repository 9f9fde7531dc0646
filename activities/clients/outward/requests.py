"""Requests to hosts that tenants name, or that the responses of such hosts name.

Each request, including its redirects, has a deadline and a size limit, goes only to
allowed addresses, and sends only the headers that its caller passes: no cookies, no
netrc file, no client certificate. An error does not show a tenant why a response was
unusable, because a tenant could map the internal network by the difference between a
closed port, a silent port and another protocol.
"""

import asyncio
import functools
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

import aiohttp
import structlog
from yarl import URL

from activities.clients.outward.addresses import PRIVATE_SETTING, AddressRules
from activities.clients.outward.answers import REDIRECTS, TooLarge, read_body
from activities.clients.outward.connections import connector, proxy_for
from activities.clients.outward.redaction import without_credential
from api_types.errors import ServerError

# Resolving a tag takes three requests, within the 30 s of the activity.
REQUEST_SECONDS = 8.0
CONNECT_SECONDS = 5.0
REDIRECTS_MAX = 3
# Headers that are sent only to the request's own server, and never logged.
_CREDENTIALS = frozenset({"authorization", "x-amz-security-token"})

log = structlog.get_logger("modelplane.outward")


class HostRefused(Exception):
    """The host of the URL must not be connected to.

    The message reveals nothing else.
    """


class HttpResponse(NamedTuple):
    """The response to a request, after redirects."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Failure(Exception):
    """The reason for a missing response, for the worker's log."""


class OutwardClient:
    """GET requests under the rules for addresses.

    `trusted` is an origin that the operator set. It may be at any address except those
    that are never allowed.
    """

    def __init__(self, rules: AddressRules, trusted: str = "") -> None:
        self._rules = rules
        self._trusted = _origin(urlsplit(trusted)) if trusted else None

    async def get(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        size_max: int,
        plain_http: bool = False,
        encoded: bool = False,
    ) -> HttpResponse:
        """Send a GET request and follow redirects.

        Credentials are not sent to another origin. With `encoded` the URL is sent
        unchanged, because it is signed. The caller has encoded each part of it.

        Raises HostRefused for the host of `url`, and ServerError if there is no usable
        response.
        """
        host = urlsplit(url).netloc
        try:
            self._check_host(urlsplit(url))
            async with asyncio.timeout(REQUEST_SECONDS):
                return await self._follow(
                    url, headers, size_max, plain_http=plain_http, encoded=encoded
                )
        except (
            _Failure,
            TooLarge,
            TimeoutError,
            aiohttp.ClientError,
            OSError,
            ValueError,
        ) as error:
            reason = (
                str(error) or f"no complete response within {REQUEST_SECONDS:.0f} s"
            )
            for name, value in headers.items():
                if name.lower() in _CREDENTIALS:
                    secret = value if " " in value else f"token {value}"
                    reason = without_credential(reason, secret)
            raise no_usable_answer(host, reason) from None

    async def _follow(
        self,
        url: str,
        headers: Mapping[str, str],
        size_max: int,
        *,
        plain_http: bool,
        encoded: bool,
    ) -> HttpResponse:
        for _ in range(REDIRECTS_MAX + 1):
            parts = urlsplit(url)
            if parts.scheme != "https" and not (plain_http and parts.scheme == "http"):
                raise _Failure(f"{url!r} is not an address that begins with https://")
            if parts.username is not None or parts.password is not None:
                raise _Failure("the address has a user name or a password in it")
            answer = await self._send(
                URL(url, encoded=True) if encoded else url, headers, size_max
            )
            if answer.status not in REDIRECTS:
                return answer
            encoded = False
            url = urljoin(url, answer.headers.get("Location", ""))
            target = urlsplit(url)
            plain_http = plain_http and parts.scheme == "http"
            if _origin(target) != _origin(parts):
                headers = {
                    name: value
                    for name, value in headers.items()
                    if name.lower() not in _CREDENTIALS
                }
            try:
                self._check_host(target)
            except HostRefused as error:
                raise _Failure(f"redirected to {target.hostname}: {error}") from None
        raise _Failure(f"more than {REDIRECTS_MAX} redirects")

    async def _send(
        self, url: str | URL, headers: Mapping[str, str], size_max: int
    ) -> HttpResponse:
        proxy = proxy_for(str(url))
        async with (
            aiohttp.ClientSession(
                connector=connector(
                    self._rules_for(urlsplit(str(url))), proxy, ssl=_tls(), limit=1
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                trust_env=False,
            ) as session,
            session.get(
                url,
                headers={
                    "User-Agent": "modelplane",
                    "Accept-Encoding": "identity",
                    **headers,
                },
                allow_redirects=False,
                proxy=proxy or None,
            ) as response,
        ):
            body = (
                b""
                if response.status in REDIRECTS
                else await read_body(response, size_max)
            )
            return HttpResponse(response.status, response.headers, body)

    def _check_host(self, parts: SplitResult) -> None:
        if reason := self._rules_for(parts).refused_host(parts.hostname or ""):
            raise HostRefused(reason)

    def _rules_for(self, parts: SplitResult) -> AddressRules:
        return (
            AddressRules(any_private=True, loopback=True)
            if _origin(parts) == self._trusted
            else self._rules
        )


def no_usable_answer(host: str, reason: str) -> ServerError:
    """Log the reason for an unusable response, and return an error without it."""
    log.warning("no usable answer", host=host, reason=reason)
    return ServerError(
        f"no usable answer from {host}: it is unreachable, its response is invalid, or "
        f"its address is neither public nor listed in {PRIVATE_SETTING}; "
        "the log of the worker has the reason"
    )


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    """Return the origin of a URL. Raises ValueError if the port is invalid."""
    return (
        parts.scheme,
        parts.hostname or "",
        parts.port or (443 if parts.scheme == "https" else 80),
    )


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
