"""The keys with which an issuer of OpenID Connect signs its tokens, read from its discovery document.

They are kept: while the issuer does not answer, tokens that are signed with known keys stay good. They are read again now and then, so
that a key which the issuer withdraws opens nothing for long, and when a token names a key that is not known, but not for each such token:
anybody can send one.
"""

import asyncio
import contextlib
import ipaddress
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

ANSWER_SECONDS = 5.0
"""How long both documents may take together."""
ASK_AGAIN_SECONDS = 10.0
"""How long after an attempt to read the keys the next one may be, whatever tokens come."""
HOLD_SECONDS = 600.0
"""After how long keys are read again, although all tokens name known ones."""
DOCUMENT_BYTES_MAX = 256 * 1024
KEYS_MAX = 64
RSA_BITS_MIN = 2048

log = structlog.get_logger("modelplane.front")

PublicKey = RSAPublicKey | EllipticCurvePublicKey


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
        """`url`: an address that `is_safe`; `tls`: which authorities its certificate is checked with, None for those of the machine.

        `now` gives seconds that never go back.
        """
        self.url = url
        self.keys: tuple[IssuerKey, ...] = ()
        self._tls, self._now = tls, now
        self._asked: float | None = None
        self._read = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._problem = ""

    async def learn(self, name: str) -> None:
        """Read the keys if this one is not known, or they are old; waits for that in the first case alone."""
        is_known = any(key.name == name for key in self.keys) if name else bool(self.keys)
        is_due = self._asked is None or self._now() - self._asked >= ASK_AGAIN_SECONDS
        if self._reading is None and is_due and (not is_known or self._now() - self._read >= HOLD_SECONDS):
            self._asked = self._now()
            self._reading = asyncio.create_task(self._refresh())
        if not is_known and self._reading:
            # Whoever does not wait any more ends it for nobody else.
            await asyncio.shield(self._reading)

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                self.keys = await self._read_keys()
            self._read, self._problem = self._now(), ""
        except (Unreadable, aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
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
            return keys_in(await _document(session, address))

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
    with contextlib.suppress(jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError):
        key = jwt.PyJWK(entry).key
    is_strong = isinstance(key, EllipticCurvePublicKey) or (isinstance(key, RSAPublicKey) and key.key_size >= RSA_BITS_MIN)
    return IssuerKey(name, key, algorithm) if is_strong else None


def is_safe(address: str) -> bool:
    """Tell whether nobody on the way can change what is read from an address: over TLS, or on this machine."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback if parts.scheme == "http" else False
    except ValueError:
        return False
    return bool(host) and not parts.username and (parts.scheme == "https" or is_local)
