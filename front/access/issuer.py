"""The signing keys of an OpenID Connect issuer, found through its discovery document.

Keys stay in use while the issuer does not answer. They are reloaded when they are old,
so that a withdrawn key is soon rejected, and when a token was signed by an unknown key.
The latter is rate-limited, because anybody can send such a token.
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
"""The time limit for reading the discovery document and the key set together."""
ASK_AGAIN_SECONDS = 10.0
"""The minimum time between two attempts to load keys."""
HOLD_SECONDS = 600.0
"""The age at which keys are reloaded although every token names a known key."""
LATELY_SECONDS = 60.0
"""The time after a failed attempt in which callers use old keys without waiting."""
DOCUMENT_BYTES_MAX = 256 * 1024
KEYS_MAX = 32
RSA_BITS_MIN = 2048

log = structlog.get_logger("modelplane.front")

PublicKey = RSAPublicKey | EllipticCurvePublicKey
Admit = Callable[[], AbstractContextManager[object]]
"""A context that is entered while the front does work for an unknown caller.

It raises to reject the caller.
"""


@dataclass(frozen=True)
class IssuerKey:
    """A signing key. `algorithm` is empty if the issuer names none."""

    name: str
    key: PublicKey
    algorithm: str = ""


class IssuerUnreadable(Exception):
    """The issuer's keys cannot be read. The message says why."""


class Issuer:
    """The keys of one issuer as they were last read."""

    def __init__(
        self,
        url: str,
        tls: ssl.SSLContext | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the address of the issuer, for which `is_issuer` must be true.

        `tls` holds the trusted authorities, None means those of the machine. `now`
        returns monotonic seconds.
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
        """Whether keys are being loaded, or a new attempt is allowed."""
        return (
            self._reading is not None
            or self._asked is None
            or self._now() - self._asked >= ASK_AGAIN_SECONDS
        )

    def knows(self, name: str) -> bool:
        """Return whether a key has this name.

        With an empty name, return whether any key is known.
        """
        return any(key.name == name for key in self.keys) if name else bool(self.keys)

    async def learn(
        self, name: str, admit: Admit = nullcontext, *, is_wrong: bool = False
    ) -> None:
        """Load keys if the named one is missing or wrong, or if all are old.

        Callers do not wait for old keys to be replaced shortly after a failed attempt.
        `admit` is entered while a caller waits. Raises what `admit` raises.
        """
        is_missing = is_wrong or not self.knows(name)
        is_old = self._now() - self._read >= HOLD_SECONDS
        if not self.can_learn or not (is_missing or is_old):
            return
        # The attempt starts even if `admit` rejects this caller. The next caller
        # profits from it.
        reading = self._begin()
        if (
            is_missing
            or self._failed is None
            or self._now() - self._failed >= LATELY_SECONDS
        ):
            with admit():
                # The attempt serves other callers too, so it survives the cancellation
                # of this one.
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
        except (
            IssuerUnreadable,
            aiohttp.ClientError,
            OSError,
            TimeoutError,
            ValueError,
        ) as error:
            self._failed = self._now()
            problem = str(error)[:512] or type(error).__name__
            if problem != self._problem:
                log.warning(
                    "cannot load the keys of the token issuer; known keys stay valid",
                    issuer=self.url,
                    problem=problem,
                )
            self._problem = problem
        finally:
            self._reading = None

    async def _read_keys(self) -> tuple[IssuerKey, ...]:
        connector = aiohttp.TCPConnector(ssl=self._tls or True)
        async with aiohttp.ClientSession(connector=connector) as session:
            document = await _document(
                session, f"{self.url.rstrip('/')}/.well-known/openid-configuration"
            )
            if document.get("issuer") != self.url:
                raise IssuerUnreadable(
                    "its discovery document belongs to another issuer"
                )
            address = document.get("jwks_uri")
            if not isinstance(address, str) or not is_safe(address):
                raise IssuerUnreadable("jwks_uri is not an https:// address")
            # Otherwise the author of a remote discovery document could make this
            # machine send requests to itself.
            if not address.lower().startswith("https:") and not _is_loopback(
                urlsplit(self.url).hostname or ""
            ):
                raise IssuerUnreadable(
                    "jwks_uri must use https:// unless the issuer is on this machine"
                )
            # An empty key set is more often a mistake of the issuer than the revocation
            # of all keys.
            if keys := keys_in(await _document(session, address)):
                return keys
            raise IssuerUnreadable(f"{address} has no usable key")

    def close(self) -> None:
        """Stop loading keys."""
        if self._reading:
            self._reading.cancel()


async def _document(session: aiohttp.ClientSession, address: str) -> dict[str, Any]:
    async with session.get(
        address, allow_redirects=False, headers={"Accept": "application/json"}
    ) as answer:
        if answer.status != HTTPStatus.OK:
            raise IssuerUnreadable(f"{address} returned HTTP status {answer.status}")
        body = bytearray()
        async for part in answer.content.iter_any():
            body += part
            if len(body) > DOCUMENT_BYTES_MAX:
                raise IssuerUnreadable(
                    f"{address} returned more than {DOCUMENT_BYTES_MAX} bytes"
                )
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        raise IssuerUnreadable(f"{address} did not return JSON") from None
    if not isinstance(tree, dict):
        raise IssuerUnreadable(f"{address} did not return a JSON object")
    return tree


def keys_in(document: dict[str, Any]) -> tuple[IssuerKey, ...]:
    """Return the signing keys of a JSON Web Key Set.

    Other entries are skipped.
    """
    entries = document.get("keys")
    if not isinstance(entries, list):
        return ()
    found = [_key(entry) for entry in entries[:KEYS_MAX]]
    return tuple(key for key in found if key)


def _key(entry: Any) -> IssuerKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    name, algorithm = entry.get("kid", ""), entry.get("alg", "")
    if not isinstance(name, str) or not isinstance(algorithm, str):
        return None
    key: Any = None
    # PyJWT raises whatever exception occurs in a malformed entry.
    with contextlib.suppress(
        jwt.PyJWTError,
        UnsupportedAlgorithm,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
    ):
        key = jwt.PyJWK(entry).key
    is_strong = isinstance(key, EllipticCurvePublicKey) or (
        isinstance(key, RSAPublicKey) and key.key_size >= RSA_BITS_MIN
    )
    return IssuerKey(name, key, algorithm) if is_strong else None


def is_safe(address: str) -> bool:
    """Return whether content from an address is protected from changes in transit.

    TLS and loopback addresses are safe. Addresses with a user, a password or a fragment
    are not accepted.
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
    """Return whether an address can be an issuer's: safe, and without a query.

    The path of the discovery document is appended to it.
    """
    return is_safe(url) and "?" not in url


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
