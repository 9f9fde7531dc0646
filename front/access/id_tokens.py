"""Verifies ID tokens as a Kubernetes API server with `--oidc-*` flags does.

A token is valid if its signature, issuer, audience and times are valid. The signature
is checked last, because it takes the most time and anybody can send a token. The
content of rejected tokens is neither logged nor returned.
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
from front.access.request_header import InvalidUserHeader

TOKEN_MAX = 8192
LEEWAY_SECONDS = 10
"""The allowed difference between the clocks of the issuer and of this machine."""
TRIED_MAX = 8
"""The maximum number of keys that are tried for one token."""
KEPT_MAX = 10_000
"""The number of valid tokens that are remembered.

The least recently used are dropped.
"""
NO_PREFIX = "-"
_NAME_MAX = 253
_GROUPS_MAX = 256
_PARTS = 3
_EMAIL, _VERIFIED = "email", "email_verified"


@dataclass(frozen=True)
class Claims:
    """The claims that name the user and groups, and their prefixes.

    The fields correspond to the flags of an API server. An empty `user_prefix` means
    the issuer followed by `#`, except for the claim `email`. NO_PREFIX means no prefix.
    Without `groups`, users have no groups. `required` lists claims and the values they
    must have.
    """

    user: str = "sub"
    user_prefix: str = ""
    groups: str = ""
    groups_prefix: str = ""
    required: tuple[tuple[str, str], ...] = ()


class IdTokens:
    """The tokens of one issuer for one audience. No algorithm uses a shared secret."""

    def __init__(
        self, issuer: Issuer, audience: str, claims: Claims, algorithms: Sequence[str]
    ) -> None:
        self._issuer = issuer
        self._audience = audience
        self._claims = claims
        self._algorithms = tuple(algorithms)
        # The key that has signed each token, by the token's hash.
        self._signed: OrderedDict[bytes, IssuerKey] = OrderedDict()

    async def learn(self, token: str, admit: Admit = nullcontext) -> None:
        """Load the issuer's keys if they are old or none of them has signed this token.

        No keys are loaded for a token that cannot be valid. The context `admit` is
        entered while the caller waits, and may raise.
        """
        header = self._header(token)
        if header is None or not self._issuer.can_learn or self._said(token) is None:
            return
        name = _name(header)
        # The limits on an address do not apply to a token that was valid before.
        # Otherwise others could block its bearer with invalid tokens from the same
        # address.
        await self._issuer.learn(
            name, nullcontext if self._signer(_digest(token)) else admit
        )
        # An issuer may reuse the name of an old key for a new one, or name no key.
        if (
            not self._issuer.keys
            or not self._issuer.can_learn
            or self._signer(_digest(token))
        ):
            return
        if self._verified(token, header, admit) is None:
            await self._issuer.learn(name, admit, is_wrong=True)

    def user_of(self, token: str, admit: Admit = nullcontext) -> User | None:
        """Return the bearer of a token, or None if the token is invalid.

        `admit` is entered for the signature check of a token that was not valid before,
        and may raise. Raises `InvalidUserHeader` while no key of the issuer is known.
        """
        header = self._header(token)
        if header is None or self._said(token) is None:
            return None
        if not self._issuer.keys:
            raise InvalidUserHeader(
                "the keys of the token issuer cannot be loaded; try again later"
            )
        said = self._verified(token, header, admit)
        return None if said is None else self._user(said)

    def close(self) -> None:
        """Stop loading keys."""
        self._issuer.close()

    def _header(self, token: str) -> Mapping[str, Any] | None:
        if (
            len(token) > TOKEN_MAX
            or token.count(".") != _PARTS - 1
            or not token.isascii()
        ):
            return None
        try:
            header: Mapping[str, Any] = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            return None
        return header if header.get("alg") in self._algorithms else None

    def _said(
        self, token: str, key: IssuerKey | None = None, algorithm: str = ""
    ) -> Mapping[str, Any] | None:
        """Return the claims if they are valid, else None.

        Without a key, the signature is not checked: anybody may have written the
        claims.
        """
        # PyJWT requires the issuer and audience claims when it verifies their values.
        options: Options = {
            "require": ["exp"],
            "verify_sub": False,
            "verify_jti": False,
        }
        if key is None:
            checks: Options = {
                "verify_signature": False,
                "verify_exp": True,
                "verify_nbf": True,
                "verify_aud": True,
                "verify_iss": True,
            }
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
        required = self._claims.required
        has_required = all(said.get(claim) == value for claim, value in required)
        return said if has_required else None

    def _verified(
        self, token: str, header: Mapping[str, Any], admit: Admit
    ) -> Mapping[str, Any] | None:
        digest, algorithm = _digest(token), header["alg"]
        if known := self._signer(digest):
            # Known tokens need no admission, for the reason given in `learn`.
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
        """Return the key that has signed a token, if the issuer still has that key."""
        key = self._signed.get(digest)
        return key if key in self._issuer.keys else None

    def _keys_for(self, header: Mapping[str, Any]) -> Iterator[IssuerKey]:
        name = _name(header)
        return (
            key
            for key in self._issuer.keys
            if (not name or key.name == name) and _is_for(key, header["alg"])
        )

    def _user(self, said: Mapping[str, Any]) -> User | None:
        wanted = self._claims
        name = said.get(wanted.user)
        groups = said.get(wanted.groups) if wanted.groups else None
        # As in an API server, null means no groups.
        if groups is None:
            groups = []
        elif isinstance(groups, str):
            groups = [groups]
        if wanted.user == _EMAIL and said.get(_VERIFIED, True) is not True:
            return None
        if (
            not isinstance(name, str)
            or not name
            or not isinstance(groups, list)
            or not all(isinstance(each, str) for each in groups)
        ):
            return None
        prefix = wanted.user_prefix or (
            "" if wanted.user == _EMAIL else f"{self._issuer.url}#"
        )
        named = name if prefix == NO_PREFIX else prefix + name
        if len(groups) > _GROUPS_MAX or not _is_usable(named):
            return None
        # No rule can name an unusable group, so dropping it changes no right.
        of_groups = (wanted.groups_prefix + each for each in groups if each)
        of_groups = (each for each in of_groups if _is_usable(each))
        return User(named, (*dict.fromkeys(of_groups), AUTHENTICATED))


def _is_for(key: IssuerKey, algorithm: str) -> bool:
    is_rsa = algorithm.startswith(("RS", "PS"))
    return (
        key.algorithm in ("", algorithm) and isinstance(key.key, RSAPublicKey) is is_rsa
    )


def _name(header: Mapping[str, Any]) -> str:
    name = header.get("kid", "")
    return name if isinstance(name, str) else ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _is_usable(name: str) -> bool:
    return name.isprintable() and 0 < len(name) <= _NAME_MAX
