"""The keys with which an issuer of OpenID Connect signs its tokens, read from its discovery document.

They are kept: while the issuer does not answer, tokens that are signed with known keys stay good. They are read again before they are used
once they are old, so that a key which the issuer withdraws opens nothing for long, and when no known key is that of a token, but not for
each such token: anybody can send one.
"""

import asyncio
import contextlib
import ipaddress
import json
import ssl
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import jwt
import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

ANSWER_SECONDS = 5.0
"""How long both documents may take together."""
ASK_AGAIN_SECONDS = 10.0
"""How long after an attempt to read the keys the next one may be, whatever tokens come."""
HOLD_SECONDS = 600.0
"""After how long keys are read again, although all tokens name known ones."""
LATELY_SECONDS = 60.0
"""For how long after an attempt that failed old keys hold, and nobody waits for the next attempt."""
DOCUMENT_BYTES_MAX = 256 * 1024
KEYS_MAX = 32
RSA_BITS_MIN = 2048

log = structlog.get_logger("modelplane.front")

PublicKey = RSAPublicKey | EllipticCurvePublicKey
Admit = Callable[[], AbstractContextManager[object]]
"""Entered for as long as a caller who is not known makes work; raises what refuses them."""


@dataclass(frozen=True)
class IssuerKey:
    """A key that signs. `algorithm`: the only one that it is for; empty if the issuer names none."""

    name: str
    key: PublicKey
    algorithm: str = ""


class Unreadable(Exception):
    """An issuer has not said its keys; the text says why."""


class Issuer:
    """The keys of one issuer, as they were last read."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None, now: Callable[[], float] = time.monotonic) -> None:
        """`url`: an address that `is_issuer`; `tls`: which authorities its certificate is checked with, None for those of the machine.

        `now` gives seconds that never go back.
        """
        self.url = url
        self.keys: tuple[IssuerKey, ...] = ()
        self._tls, self._now = tls, now
        self._asked: float | None = None
        self._read = 0.0
        self._failed: float | None = None
        self._reading: asyncio.Task[None] | None = None
        self._problem = ""

    @property
    def can_learn(self) -> bool:
        """Whether the keys are being read, or may be."""
        return self._reading is not None or self._asked is None or self._now() - self._asked >= ASK_AGAIN_SECONDS

    def knows(self, name: str) -> bool:
        """Tell whether there is a key of this name, or any if it is empty."""
        return any(key.name == name for key in self.keys) if name else bool(self.keys)

    async def learn(self, name: str, admit: Admit = nullcontext, *, is_wrong: bool = False) -> None:
        """Read the keys if this one is not known, is wrong, or they are old, and wait for that. Raises what `admit` raises.

        Nobody waits for old keys whose last reading has failed lately. `admit` is entered for as long as it is waited.
        """
        is_missing, is_old = is_wrong or not self.knows(name), self._now() - self._read >= HOLD_SECONDS
        if not self.can_learn or not (is_missing or is_old):
            return
        # They are read for whoever asks next, though this one may be refused.
        reading = self._begin()
        if is_missing or self._failed is None or self._now() - self._failed >= LATELY_SECONDS:
            with admit():
                # Whoever does not wait any more ends it for nobody else.
                await asyncio.shield(reading)

    def _begin(self) -> asyncio.Task[None]:
        if self._reading is None:
            self._asked = self._now()
            self._reading = asyncio.create_task(self._refresh())
        return self._reading

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                self.keys = await self._read_keys()
            self._read, self._failed, self._problem = self._now(), None, ""
        except (Unreadable, aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            self._failed = self._now()
            problem = str(error)[:512] or type(error).__name__
            if problem != self._problem:
                log.warning("the keys of the issuer of tokens cannot be read; known ones hold", issuer=self.url, problem=problem)
            self._problem = problem
        finally:
            self._reading = None

    async def _read_keys(self) -> tuple[IssuerKey, ...]:
        connector = aiohttp.TCPConnector(ssl=self._tls or True)
        async with aiohttp.ClientSession(connector=connector) as session:
            document = await _document(session, f"{self.url.rstrip('/')}/.well-known/openid-configuration")
            if document.get("issuer") != self.url:
                raise Unreadable("its discovery document is of another issuer")
            address = document.get("jwks_uri")
            if not isinstance(address, str) or not is_safe(address):
                raise Unreadable("jwks_uri is no address that begins with https")
            # Whoever writes the document of an issuer elsewhere must not choose what this machine asks itself.
            if not address.lower().startswith("https:") and not _is_loopback(urlsplit(self.url).hostname or ""):
                raise Unreadable("jwks_uri is without TLS, and the issuer is not on this machine")
            # A set without keys is more often a mistake of the issuer than the end of all its keys.
            if keys := keys_in(await _document(session, address)):
                return keys
            raise Unreadable(f"{address} has no key that can be used")

    def close(self) -> None:
        """Read no more."""
        if self._reading:
            self._reading.cancel()


async def _document(session: aiohttp.ClientSession, address: str) -> dict[str, Any]:
    async with session.get(address, allow_redirects=False, headers={"Accept": "application/json"}) as answer:
        if answer.status != HTTPStatus.OK:
            raise Unreadable(f"{address} answers with {answer.status}")
        body = bytearray()
        async for part in answer.content.iter_any():
            body += part
            if len(body) > DOCUMENT_BYTES_MAX:
                raise Unreadable(f"{address} has more than {DOCUMENT_BYTES_MAX} bytes")
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        raise Unreadable(f"{address} is no JSON") from None
    if not isinstance(tree, dict):
        raise Unreadable(f"{address} is no object")
    return tree


def keys_in(document: dict[str, Any]) -> tuple[IssuerKey, ...]:
    """Give the keys of a JSON Web Key Set that can sign tokens; others, and what is no key, are left out."""
    listed = document.get("keys")
    found = [_key(each) for each in (listed if isinstance(listed, list) else [])[:KEYS_MAX]]
    return tuple(key for key in found if key)


def _key(entry: Any) -> IssuerKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    name, algorithm = entry.get("kid", ""), entry.get("alg", "")
    if not isinstance(name, str) or not isinstance(algorithm, str):
        return None
    key: Any = None
    # The library raises what it happens to meet in an entry that is no key.
    with contextlib.suppress(jwt.PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        key = jwt.PyJWK(entry).key
    is_strong = isinstance(key, EllipticCurvePublicKey) or (isinstance(key, RSAPublicKey) and key.key_size >= RSA_BITS_MIN)
    return IssuerKey(name, key, algorithm) if is_strong else None


def is_safe(address: str) -> bool:
    """Tell whether nobody on the way can change what is read from an address: over TLS, or on this machine.

    One with a user, a password or a fragment is not.
    """
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return False
    if not host or "@" in parts.netloc or "#" in address:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def is_issuer(url: str) -> bool:
    """Tell whether an issuer may have this address: one that `is_safe`, without a query, so that a path can be put behind it."""
    return is_safe(url) and "?" not in url


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
