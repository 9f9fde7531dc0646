"""Tokens of OpenID Connect: whose they are, read as a Kubernetes API server reads them with its flags `--oidc-*`.

What a token says counts once its signature, its issuer, its audience and its time are right. Nothing of a token that is refused is told or
recorded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from front.access.access_file import AUTHENTICATED, User
from front.access.issuer import Issuer, IssuerKey
from front.access.request_header import Unusable

TOKEN_MAX = 8192
LEEWAY_SECONDS = 10
"""How far the clocks of the issuer and of this machine may be apart."""
NO_PREFIX = "-"
_NAME_MAX = 253
_GROUPS_MAX = 256
_PARTS = 3
_EMAIL, _VERIFIED = "email", "email_verified"


@dataclass(frozen=True)
class Claims:
    """Where a token says who its bearer is, and what is put before that; the same as the flags of an API server.

    An empty `user_prefix` is the issuer and `#`, but for the claim `email`; NO_PREFIX is none. Without `groups` there are no groups.
    """

    user: str = "sub"
    user_prefix: str = ""
    groups: str = ""
    groups_prefix: str = ""


class IdTokens:
    """The tokens of one issuer for one audience, signed by one of some algorithms, of which none uses a shared secret."""

    def __init__(self, issuer: Issuer, audience: str, claims: Claims, algorithms: Sequence[str]) -> None:
        """Take what makes a token good."""
        self._issuer, self._audience, self._claims, self._algorithms = issuer, audience, claims, tuple(algorithms)

    async def learn(self, token: str) -> None:
        """Read the issuer's keys if a token says that it is of this issuer, and names a key that is not known."""
        header = self._header(token)
        if header is not None and _says(token).get("iss") == self._issuer.url:
            await self._issuer.learn(_name(header))

    def user_of(self, token: str) -> User | None:
        """Give the bearer of a token; None if it is not good. Raises `Unusable` while no key of the issuer is known."""
        header = self._header(token)
        if header is None:
            return None
        if not self._issuer.keys and _says(token).get("iss") == self._issuer.url:
            raise Unusable("the keys of the issuer of tokens cannot be read at this moment")
        name, algorithm = _name(header), header["alg"]
        for key in self._issuer.keys:
            if (not name or key.name == name) and _is_for(key, algorithm) and (said := self._verified(token, key, algorithm)):
                return self._user(said)
        return None

    def close(self) -> None:
        """Read no more keys."""
        self._issuer.close()

    def _header(self, token: str) -> Mapping[str, Any] | None:
        if len(token) > TOKEN_MAX or token.count(".") != _PARTS - 1 or not token.isascii():
            return None
        try:
            header: Mapping[str, Any] = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            return None
        return header if header.get("alg") in self._algorithms else None

    def _verified(self, token: str, key: IssuerKey, algorithm: str) -> Mapping[str, Any] | None:
        try:
            return jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._issuer.url,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"], "verify_sub": False, "verify_jti": False},
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            return None

    def _user(self, said: Mapping[str, Any]) -> User | None:
        wanted = self._claims
        name, groups = said.get(wanted.user), said.get(wanted.groups, []) if wanted.groups else []
        groups = [groups] if isinstance(groups, str) else groups
        if wanted.user == _EMAIL and said.get(_VERIFIED, True) is not True:
            return None
        if not isinstance(name, str) or not name or not isinstance(groups, list) or not all(isinstance(each, str) for each in groups):
            return None
        prefix = wanted.user_prefix or ("" if wanted.user == _EMAIL else f"{self._issuer.url}#")
        named = name if prefix == NO_PREFIX else prefix + name
        of_groups = tuple(wanted.groups_prefix + each for each in groups)
        if len(of_groups) > _GROUPS_MAX or not all(each.isprintable() and 0 < len(each) <= _NAME_MAX for each in (named, *of_groups)):
            return None
        return User(named, (*dict.fromkeys(of_groups), AUTHENTICATED))


def _is_for(key: IssuerKey, algorithm: str) -> bool:
    is_rsa = algorithm.startswith(("RS", "PS"))
    return key.algorithm in ("", algorithm) and isinstance(key.key, RSAPublicKey) is is_rsa


def _name(header: Mapping[str, Any]) -> str:
    name = header.get("kid", "")
    return name if isinstance(name, str) else ""


def _says(token: str) -> Mapping[str, Any]:
    """Read what a token says, which anybody may have written."""
    try:
        said: Mapping[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        return {}
    return said
