"""Callers: keys of accounts, their access tokens, and the check of a token.

A call without a token is allowed, so that most tests need no credential. A token that a
call carries is checked.
"""

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from fakes.gcp.calls.errors import CloudError
from fakes.gcp.calls.federation import Federation

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
SKEWED = (
    "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable "
    "timeframe. Check your iat and exp values and use a clock with skew to account for "
    "clock differences between systems."
)
_BITS = 2048
_LEEWAY_SECONDS = 300


class InvalidGrant(Exception):
    """No token is issued. The text is the answer of the token endpoint."""


@dataclass(frozen=True)
class AccountKey:
    """The public half of a key, and its account."""

    key_id: str
    email: str
    public_pem: bytes = field(repr=False)


class GcpTokens:
    """Keys, and the tokens issued for them."""

    def __init__(
        self, lifetime_seconds: int, now: Callable[[], float] = time.time
    ) -> None:
        self._lifetime_seconds = lifetime_seconds
        self._clock = now
        self.ahead_seconds = 0.0
        """The seconds by which Google's clock is ahead of this machine's."""
        self.federation = Federation()
        self._keys: dict[str, AccountKey] = {}
        self._issued: dict[str, tuple[str, str, float]] = {}
        self._revoked: set[str] = set()
        self._refusals_left = 0
        self.skewed = False
        """Whether the caller's clock differs too much for any token."""
        self._numbers = 0

    def _now(self) -> float:
        return self._clock() + self.ahead_seconds

    def new_key(
        self, email: str, project: str, token_uri: str, key_id: str | None = None
    ) -> tuple[str, str]:
        """Create a key for an account.

        Return its id and the JSON text that google-auth reads. The private half is not
        kept.
        """
        self._numbers += 1
        key_id = key_id or f"{self._numbers:040x}"
        private = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
        self._keys[key_id] = AccountKey(key_id, email, _public_pem(private))
        pem = private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        document = {
            "type": "service_account",
            "project_id": project,
            "private_key_id": key_id,
            "private_key": pem.decode(),
            "client_email": email,
            "client_id": f"{self._numbers:021d}",
            "token_uri": token_uri,
            "universe_domain": "googleapis.com",
        }
        return key_id, json.dumps(document)

    def known_key(self, email: str, text: str, token_uri: str) -> str:
        """Accept a key that `new_key` created earlier.

        Return its JSON text with the present token endpoint. Raise ValueError for an
        invalid key.
        """
        document = json.loads(text)
        private = serialization.load_pem_private_key(
            document["private_key"].encode(), password=None
        )
        self._keys[document["private_key_id"]] = AccountKey(
            document["private_key_id"], email, _public_pem(private)
        )
        return json.dumps(document | {"token_uri": token_uri})

    def drop_key(self, key_id: str) -> None:
        """Delete a key: it gets no new tokens.

        Issued tokens stay valid, as at Google.
        """
        self._keys.pop(key_id, None)

    def drop_account(self, email: str) -> None:
        """Delete all keys and tokens of an account."""
        self._keys = {
            key_id: key for key_id, key in self._keys.items() if key.email != email
        }
        self._issued = {
            token: issued
            for token, issued in self._issued.items()
            if issued[0] != email
        }

    def grant(self, grant_type: str, assertion: str) -> dict[str, Any]:
        """Answer a request of the token endpoint with an access token.

        Raise InvalidGrant.
        """
        if grant_type != GRANT:
            raise InvalidGrant("Unsupported grant type.")
        if self.skewed:
            raise InvalidGrant(SKEWED)
        if self._refusals_left:
            self._refusals_left -= 1
            raise InvalidGrant("Invalid grant: account not found")
        try:
            key = self._keys.get(str(jwt.get_unverified_header(assertion).get("kid")))
            if key is None:
                raise InvalidGrant("Invalid JWT Signature.")
            claims = jwt.decode(
                assertion,
                key.public_pem,
                algorithms=["RS256"],
                options={
                    "verify_aud": False,
                    "verify_exp": False,
                    "verify_iat": False,
                },
            )
        except jwt.PyJWTError as error:
            raise InvalidGrant(f"Invalid JWT: {error}") from error
        if claims.get("iss") != key.email or key.email in self._revoked:
            raise InvalidGrant("Invalid grant: account not found")
        if not claims["iat"] - _LEEWAY_SECONDS <= self._now() < claims["exp"]:
            raise InvalidGrant(
                "Invalid JWT: Token must be a short-lived token (60 minutes) and in a "
                "reasonable timeframe. Check your iat and exp values in the JWT claim."
            )
        return self.issue(key.email, key.key_id)

    def issue(self, account: str, key_id: str = "") -> dict[str, Any]:
        """Issue an access token of an account or principal."""
        self._numbers += 1
        # The token is unique even across fakes, so that a test that searches for it
        # finds only this one.
        unique = f"{account}/{id(self)}/{self._numbers}".encode()
        token = f"ya29.{base64.urlsafe_b64encode(unique).decode().rstrip('=')}"
        self._issued[token] = (account, key_id, self._now() + self._lifetime_seconds)
        return {
            "access_token": token,
            "expires_in": self._lifetime_seconds,
            "token_type": "Bearer",
        }

    def expiry(self, token: str) -> float:
        """Return when an issued token ends, in seconds since 1970."""
        return self._issued[token][2]

    def account_of(self, token: str) -> str | None:
        """Return the account of a token, or None if it is unknown, expired or revoked."""
        email, _, end = self._issued.get(token, ("", "", 0.0))
        return (
            email
            if email and end > self._now() and email not in self._revoked
            else None
        )

    def check(self, token: str | None) -> str:
        """Return the account of a call's token, or "" without one.

        Raise CloudError UNAUTHENTICATED.
        """
        if self._refusals_left:
            self._refusals_left -= 1
            raise _unauthenticated()
        if token is None:
            return ""
        email = self.account_of(token)
        if email is None:
            raise _unauthenticated()
        return email

    def expire_all(self) -> None:
        """End every issued token. New ones are available."""
        self._issued = {}

    def revoke(self, email: str) -> None:
        """Refuse the tokens of an account, and issue none, until `restore`."""
        self._revoked.add(email)

    def restore(self, email: str) -> None:
        """Accept an account and its tokens again."""
        self._revoked.discard(email)

    def refuse(self, calls: int) -> None:
        """Refuse every token, and issue none, for so many calls."""
        self._refusals_left = calls

    def issued(self) -> list[str]:
        """Return every known token, for tests that search for leaked tokens."""
        return list(self._issued)


def _public_pem(private: PrivateKeyTypes) -> bytes:
    return private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _unauthenticated() -> CloudError:
    return CloudError(
        "UNAUTHENTICATED",
        "Request had invalid authentication credentials.",
        reason="ACCESS_TOKEN_EXPIRED",
        metadata={"service": "googleapis.com"},
    )
