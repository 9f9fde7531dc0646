"""Who calls: keys of accounts, the access tokens that are issued for them, and whether a token is still accepted.

A call without a token is let through, so that a test of something else needs no credential; a token that a call carries is checked.
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

from testbed.clouds.gcp.calls.errors import CloudError

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_BITS = 2048


class InvalidGrant(Exception):
    """No token is issued; the text is what the token endpoint answers."""


@dataclass(frozen=True)
class AccountKey:
    """The public half of a key, and whose it is."""

    key_id: str
    email: str
    public_pem: bytes = field(repr=False)


class Tokens:
    """Keys, and tokens issued for them."""

    def __init__(self, lifetime_seconds: int, now: Callable[[], float] = time.time) -> None:
        self._lifetime_seconds = lifetime_seconds
        self._now = now
        self._keys: dict[str, AccountKey] = {}
        self._issued: dict[str, tuple[str, str, float]] = {}
        self._revoked: set[str] = set()
        self._refusals_left = 0
        self._numbers = 0

    def new_key(self, email: str, project: str, token_uri: str, key_id: str | None = None) -> tuple[str, str]:
        """Make a key for an account. Gives its id and the JSON text that google-auth reads; the private half is kept nowhere here."""
        self._numbers += 1
        key_id = key_id or f"{self._numbers:040x}"
        private = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
        self._keys[key_id] = AccountKey(key_id, email, _public_pem(private))
        pem = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
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
        """Accept a key that `new_key` made once. Gives its JSON text with where tokens are had now. Raises ValueError for what is none."""
        document = json.loads(text)
        private = serialization.load_pem_private_key(document["private_key"].encode(), password=None)
        self._keys[document["private_key_id"]] = AccountKey(document["private_key_id"], email, _public_pem(private))
        return json.dumps(document | {"token_uri": token_uri})

    def drop_key(self, key_id: str) -> None:
        """Delete a key: no new token for it. Tokens that were issued live on, as at Google."""
        self._keys.pop(key_id, None)

    def drop_account(self, email: str) -> None:
        """Delete all keys and tokens of an account."""
        self._keys = {key_id: key for key_id, key in self._keys.items() if key.email != email}
        self._issued = {token: issued for token, issued in self._issued.items() if issued[0] != email}

    def grant(self, grant_type: str, assertion: str) -> dict[str, Any]:
        """Answer a request of the token endpoint with an access token. Raises InvalidGrant."""
        if grant_type != GRANT:
            raise InvalidGrant("Unsupported grant type.")
        if self._refusals_left:
            self._refusals_left -= 1
            raise InvalidGrant("Invalid grant: account not found")
        try:
            key = self._keys.get(str(jwt.get_unverified_header(assertion).get("kid")))
            if key is None:
                raise InvalidGrant("Invalid JWT Signature.")
            claims = jwt.decode(assertion, key.public_pem, algorithms=["RS256"], options={"verify_aud": False})
        except jwt.PyJWTError as error:
            raise InvalidGrant(f"Invalid JWT: {error}") from error
        if claims.get("iss") != key.email or key.email in self._revoked:
            raise InvalidGrant("Invalid grant: account not found")
        self._numbers += 1
        # The text of a token differs from all others also between two fakes, so that a test that searches for it finds only this one.
        token = f"ya29.{base64.urlsafe_b64encode(f'{key.email}/{id(self)}/{self._numbers}'.encode()).decode().rstrip('=')}"
        self._issued[token] = key.email, key.key_id, self._now() + self._lifetime_seconds
        return {"access_token": token, "expires_in": self._lifetime_seconds, "token_type": "Bearer"}

    def account_of(self, token: str) -> str | None:
        """Give the account that a token was issued for; None for one that is unknown, expired or revoked."""
        email, _, end = self._issued.get(token, ("", "", 0.0))
        return email if email and end > self._now() and email not in self._revoked else None

    def check(self, token: str | None) -> str:
        """Give the account of the token that a call carries, empty without one. Raises CloudError UNAUTHENTICATED."""
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
        """End every token that was issued; a new one can be had."""
        self._issued = {}

    def revoke(self, email: str) -> None:
        """Refuse the tokens of an account, and new ones, until `restore`."""
        self._revoked.add(email)

    def restore(self, email: str) -> None:
        """Accept an account again, with the tokens it has."""
        self._revoked.discard(email)

    def refuse(self, calls: int) -> None:
        """Refuse every token, and new ones, for so many calls."""
        self._refusals_left = calls

    def issued(self) -> list[str]:
        """Give every token that is known, to search for in what must hold none."""
        return list(self._issued)


def _public_pem(private: PrivateKeyTypes) -> bytes:
    return private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _unauthenticated() -> CloudError:
    return CloudError(
        "UNAUTHENTICATED",
        "Request had invalid authentication credentials.",
        reason="ACCESS_TOKEN_EXPIRED",
        metadata={"service": "googleapis.com"},
    )
