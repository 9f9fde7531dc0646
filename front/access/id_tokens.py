"""Tokens of OpenID Connect: whose they are, read as a Kubernetes API server reads them with its flags `--oidc-*`.

What a token says counts once its signature, its issuer, its audience and its time are right. The signature is looked at last: it takes most
of the time, and anybody can send a token. Nothing of a token that is refused is told or recorded.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.types import Options

from front.access.access_file import AUTHENTICATED, User
from front.access.issuer import Admit, Issuer, IssuerKey
from front.access.request_header import Unusable

TOKEN_MAX = 8192
LEEWAY_SECONDS = 10
"""How far the clocks of the issuer and of this machine may be apart."""
TRIED_MAX = 8
"""With how many keys one token is tried."""
KEPT_MAX = 10_000
"""Tokens of which it is known that they were good; beyond, those that were sent least recently are forgotten."""
NO_PREFIX = "-"
_NAME_MAX = 253
_GROUPS_MAX = 256
_PARTS = 3
_EMAIL, _VERIFIED = "email", "email_verified"


@dataclass(frozen=True)
class Claims:
    """Where a token says who its bearer is, and what is put before that; the same as the flags of an API server.

    An empty `user_prefix` is the issuer and `#`, but for the claim `email`; NO_PREFIX is none. Without `groups` there are no groups.
    `required`: claims with the values that they must have, as texts.
    """

    user: str = "sub"
    user_prefix: str = ""
    groups: str = ""
    groups_prefix: str = ""
    required: tuple[tuple[str, str], ...] = ()


class IdTokens:
    """The tokens of one issuer for one audience, signed by one of some algorithms, of which none uses a shared secret."""

    def __init__(self, issuer: Issuer, audience: str, claims: Claims, algorithms: Sequence[str]) -> None:
        """Take what makes a token good."""
        self._issuer, self._audience, self._claims, self._algorithms = issuer, audience, claims, tuple(algorithms)
        # By the hash of a token, the key that has signed it.
        self._signed: OrderedDict[bytes, IssuerKey] = OrderedDict()

    async def learn(self, token: str, admit: Admit = nullcontext) -> None:
        """Read the issuer's keys if a token could be good, and no known key has signed it, or they are old.

        `admit` is entered where that takes time, and may raise.
        """
        header = self._header(token)
        if header is None or not self._issuer.can_learn or self._said(token) is None:
            return
        name = _name(header)
        # Its bearer is kept out by nobody who sends wrong tokens from the same address.
        await self._issuer.learn(name, nullcontext if self._signer(_digest(token)) else admit)
        # An issuer may give a new key the name of an old one, or none.
        if not self._issuer.keys or not self._issuer.can_learn or self._signer(_digest(token)):
            return
        if self._verified(token, header, admit) is None:
            await self._issuer.learn(name, admit, is_wrong=True)

    def user_of(self, token: str, admit: Admit = nullcontext) -> User | None:
        """Give the bearer of a token; None if it is not good. Raises `Unusable` while no key of the issuer is known.

        `admit` is entered to look at the signature of a token that has not been good before, and may raise.
        """
        header = self._header(token)
        if header is None or self._said(token) is None:
            return None
        if not self._issuer.keys:
            raise Unusable("the keys of the issuer of tokens cannot be read at this moment")
        said = self._verified(token, header, admit)
        return None if said is None else self._user(said)

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

    def _said(self, token: str, key: IssuerKey | None = None, algorithm: str = "") -> Mapping[str, Any] | None:
        """Read what a token says, if that makes it good; without a key, anybody may have written it."""
        # Issuer and audience must be there to be what they have to be.
        options: Options = {"require": ["exp"], "verify_sub": False, "verify_jti": False}
        if key is None:
            checks: Options = {"verify_signature": False, "verify_exp": True, "verify_nbf": True, "verify_aud": True, "verify_iss": True}
            options = {**options, **checks}
        try:
            said: Mapping[str, Any] = jwt.decode(
                token,
                key.key if key else "",
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._issuer.url,
                leeway=LEEWAY_SECONDS,
                options=options,
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            return None
        return said if all(said.get(claim) == value for claim, value in self._claims.required) else None

    def _verified(self, token: str, header: Mapping[str, Any], admit: Admit) -> Mapping[str, Any] | None:
        digest, algorithm = _digest(token), header["alg"]
        if known := self._signer(digest):
            # As above nobody else keeps its bearer out.
            self._signed.move_to_end(digest)
            return self._said(token, known, algorithm)
        with admit():
            for key in islice(self._keys_for(header), TRIED_MAX):
                if (said := self._said(token, key, algorithm)) is not None:
                    self._signed[digest] = key
                    if len(self._signed) > KEPT_MAX:
                        self._signed.popitem(last=False)
                    return said
        return None

    def _signer(self, digest: bytes) -> IssuerKey | None:
        """Give the key that has signed a token, if it is known, and is the issuer's still."""
        key = self._signed.get(digest)
        return key if key in self._issuer.keys else None

    def _keys_for(self, header: Mapping[str, Any]) -> Iterator[IssuerKey]:
        name = _name(header)
        return (key for key in self._issuer.keys if (not name or key.name == name) and _is_for(key, header["alg"]))

    def _user(self, said: Mapping[str, Any]) -> User | None:
        wanted = self._claims
        name, groups = said.get(wanted.user), (said.get(wanted.groups) if wanted.groups else None)
        # As at an API server null is no group.
        groups = [] if groups is None else [groups] if isinstance(groups, str) else groups
        if wanted.user == _EMAIL and said.get(_VERIFIED, True) is not True:
            return None
        if not isinstance(name, str) or not name or not isinstance(groups, list) or not all(isinstance(each, str) for each in groups):
            return None
        prefix = wanted.user_prefix or ("" if wanted.user == _EMAIL else f"{self._issuer.url}#")
        named = name if prefix == NO_PREFIX else prefix + name
        if len(groups) > _GROUPS_MAX or not _is_usable(named):
            return None
        # A group that no rule can name gives no right, and takes none either.
        of_groups = (wanted.groups_prefix + each for each in groups if each)
        of_groups = (each for each in of_groups if _is_usable(each))
        return User(named, (*dict.fromkeys(of_groups), AUTHENTICATED))


def _is_for(key: IssuerKey, algorithm: str) -> bool:
    is_rsa = algorithm.startswith(("RS", "PS"))
    return key.algorithm in ("", algorithm) and isinstance(key.key, RSAPublicKey) is is_rsa


def _name(header: Mapping[str, Any]) -> str:
    name = header.get("kid", "")
    return name if isinstance(name, str) else ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _is_usable(name: str) -> bool:
    return name.isprintable() and 0 < len(name) <= _NAME_MAX
