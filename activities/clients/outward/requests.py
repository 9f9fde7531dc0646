"""Requests to hosts that tenants name, or that the answers of such hosts name.

Each request, its redirects included, has a deadline and a bound of its size, goes only where the rules of addresses allow, and carries
nothing but what its caller gives: no cookies, no netrc file, no client certificate. A tenant learns from an error that there was no usable
answer and not why: the difference between a closed port, a silent one and one that speaks another protocol is a map of the network.
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

# Three requests resolve a tag, within the 30 s of the activity that sends them.
REQUEST_SECONDS = 8.0
CONNECT_SECONDS = 5.0
REDIRECTS_MAX = 3
# Of a request itself: what only its server may see, and what no log shows.
_CREDENTIALS = frozenset({"authorization", "x-amz-security-token"})

log = structlog.get_logger("modelplane.outward")


class HostRefused(Exception):
    """The host, as it is written, must not be connected to. The text says why, and tells nothing that is not in it."""


class Answer(NamedTuple):
    """The answer to a request, after redirects."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Failure(Exception):
    """Why there is no answer, for the worker's log."""


class OutwardClient:
    """GET requests under the rules for addresses. Those of `trusted`, an origin that the operator chose, may be at any usual address."""

    def __init__(self, rules: AddressRules, trusted: str = "") -> None:
        self._rules = rules
        self._trusted = _origin(urlsplit(trusted)) if trusted else None

    async def get(self, url: str, headers: Mapping[str, str], *, size_max: int, plain_http: bool = False, encoded: bool = False) -> Answer:
        """Send a GET request and follow redirects, without its credentials to another origin.

        `encoded`: the address is sent as it is written, because it is signed; the caller has encoded each part of it.

        Raises HostRefused for the host of `url`, and ServerError when there is no answer that can be used.
        """
        host = urlsplit(url).netloc
        try:
            self._check_host(urlsplit(url))
            async with asyncio.timeout(REQUEST_SECONDS):
                return await self._follow(url, headers, size_max, plain_http=plain_http, encoded=encoded)
        except (_Failure, TooLarge, TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            reason = str(error) or f"no complete answer within {REQUEST_SECONDS:.0f} s"
            for name, value in headers.items():
                if name.lower() in _CREDENTIALS:
                    reason = without_credential(reason, value if " " in value else f"token {value}")
            raise no_usable_answer(host, reason) from None

    async def _follow(self, url: str, headers: Mapping[str, str], size_max: int, *, plain_http: bool, encoded: bool) -> Answer:
        for _ in range(REDIRECTS_MAX + 1):
            parts = urlsplit(url)
            if parts.scheme != "https" and not (plain_http and parts.scheme == "http"):
                raise _Failure(f"{url!r} is not an address that begins with https://")
            if parts.username is not None or parts.password is not None:
                raise _Failure("the address has a user name or a password in it")
            answer = await self._send(URL(url, encoded=True) if encoded else url, headers, size_max)
            if answer.status not in REDIRECTS:
                return answer
            encoded = False
            url = urljoin(url, answer.headers.get("Location", ""))
            target = urlsplit(url)
            plain_http = plain_http and parts.scheme == "http"
            if _origin(target) != _origin(parts):
                headers = {name: value for name, value in headers.items() if name.lower() not in _CREDENTIALS}
            try:
                self._check_host(target)
            except HostRefused as error:
                raise _Failure(f"redirected to {target.hostname}: {error}") from None
        raise _Failure(f"more than {REDIRECTS_MAX} redirects")

    async def _send(self, url: str | URL, headers: Mapping[str, str], size_max: int) -> Answer:
        proxy = proxy_for(str(url))
        async with (
            aiohttp.ClientSession(
                connector=connector(self._rules_for(urlsplit(str(url))), proxy, ssl=_tls(), limit=1),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                trust_env=False,
            ) as session,
            session.get(
                url,
                headers={"User-Agent": "modelplane", "Accept-Encoding": "identity", **headers},
                allow_redirects=False,
                proxy=proxy or None,
            ) as response,
        ):
            body = b"" if response.status in REDIRECTS else await read_body(response, size_max)
            return Answer(response.status, response.headers, body)

    def _check_host(self, parts: SplitResult) -> None:
        if reason := self._rules_for(parts).refused_host(parts.hostname or ""):
            raise HostRefused(reason)

    def _rules_for(self, parts: SplitResult) -> AddressRules:
        return AddressRules(any_private=True, loopback=True) if _origin(parts) == self._trusted else self._rules


def no_usable_answer(host: str, reason: str) -> ServerError:
    """Make the error for an answer that is missing or that cannot be used; `reason` goes to the worker's log only."""
    log.warning("no usable answer", host=host, reason=reason)
    return ServerError(
        f"no usable answer from {host}: it cannot be reached, does not answer as it should, or is at an address that is not public and not "
        f"listed in {PRIVATE_SETTING}; the log of the worker says which"
    )


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    """Give what two addresses have in common that are of one server. Raises ValueError if the port is none."""
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
