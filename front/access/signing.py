"""Callers that sign their requests: who has which keys, and whether a signature is theirs.

    callers:
    - name: burst-controller
      groups: [ml-team]
      keys: [<hex of 32 bytes or more>]

A caller has the rights that the access file gives to this name and these groups. Several keys, so that one can be replaced. The file is
read again when it changes. A key is used here alone, and is in no message, history or log.

What is signed names the control plane that is meant, its audience: else a request to one would be good at each other one where its caller
has the same key.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from front.access.access_file import AUTHENTICATED, User
from front.access.files import Section, Text, WatchedFile

CALLER, TIMESTAMP, REQUEST_ID, SIGNATURE = (
    "Modelplane-Caller",
    "Modelplane-Timestamp",
    "Modelplane-Request-Id",
    "Modelplane-Signature",
)
HEADERS = (CALLER, TIMESTAMP, REQUEST_ID, SIGNATURE)
SCHEME = "v1"
"""The first line of what is signed: another way to sign gets another one, so that no signature is good for both."""
WINDOW_SECONDS = 300
"""How far the time of a request may be from ours."""

_TIMESTAMP = re.compile("[0-9]{1,12}")
_REQUEST_ID = re.compile("[A-Za-z0-9._-]{16,64}")
_SIGNATURE = re.compile("[0-9a-f]{64}")
# Whoever is not known is compared too, so that the time of an answer does not tell names.
_NOBODY = (b"\0" * 32,)

Key = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2}){32,128}$")]


class Caller(Section):
    """A program that signs, with its keys."""

    name: Text
    groups: tuple[Text, ...] = ()
    keys: Annotated[tuple[Key, ...], Field(min_length=1, max_length=8, repr=False)]


class CallersFile(Section):
    """All of it."""

    callers: tuple[Caller, ...] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        if len({caller.name for caller in self.callers}) != len(self.callers):
            raise ValueError("callers: each name may be there once; a caller may have several keys")
        return self


@dataclass(frozen=True)
class Presented:
    """The headers of a signed request, of which each has its form. Whether the signature is right is not known yet."""

    caller: str
    timestamp: str
    request_id: str
    signature: str


@dataclass(frozen=True)
class Signed:
    """A request whose signature is that of a caller. `request_id`: chosen by the caller, the same for a repeat."""

    user: User
    request_id: str


class BadSignature(Exception):
    """A request that is not signed by a known caller, or not in time; the text says what its sender may know."""


class Callers:
    """The file of callers as it was last read."""

    def __init__(self, file: Path, audience: str) -> None:
        """Read it. `audience`: which control plane a signature must be for. Raises `BadAccessFile`."""
        self._file, self._audience = WatchedFile(file, CallersFile), audience

    def refresh(self) -> str:
        """Read the file again if it has changed; gives what is wrong with it, if it cannot be used."""
        return self._file.refresh()

    def verify(self, presented: Presented, method: str, target: str, body: bytes, now: float) -> Signed:
        """Give who signed a request. `target`: path and query as they were sent; `now`: seconds since 1970. Raises `BadSignature`."""
        # Again: the body may have come so slowly that what was ordered before is forgotten by now.
        _check_time(presented, now)
        known = next((each for each in self._file.content.callers if each.name == presented.caller), None)
        keys = [bytes.fromhex(key) for key in known.keys] if known else _NOBODY
        signed = signed_text(self._audience, presented.timestamp, presented.request_id, method=method, target=target, body=body)
        # All are compared, for the same reason.
        matches = [hmac.compare_digest(hmac.digest(key, signed, hashlib.sha256).hex(), presented.signature) for key in keys]
        if known is None or not any(matches):
            raise BadSignature("no caller of this name has a key with this signature")
        return Signed(User(known.name, (*known.groups, AUTHENTICATED)), presented.request_id)


def presented_in(headers: Mapping[str, str], now: float) -> Presented:
    """Read the headers of a signed request, before its body is. `now`: seconds since 1970. Raises `BadSignature`."""
    presented = Presented(*(headers.get(name, "") for name in HEADERS))
    shapes = (
        (TIMESTAMP, _TIMESTAMP, presented.timestamp),
        (REQUEST_ID, _REQUEST_ID, presented.request_id),
        (SIGNATURE, _SIGNATURE, presented.signature),
    )
    wrong = [] if presented.caller else [CALLER]
    wrong += [name for name, shape, value in shapes if not shape.fullmatch(value)]
    if wrong:
        raise BadSignature(f"missing or malformed: {', '.join(wrong)}")
    _check_time(presented, now)
    return presented


def _check_time(presented: Presented, now: float) -> None:
    if abs(now - int(presented.timestamp)) > WINDOW_SECONDS:
        raise BadSignature(f"{TIMESTAMP} is more than {WINDOW_SECONDS} s from the time here; sign again with the present time")


def signed_text(audience: str, timestamp: str, request_id: str, *, method: str, target: str, body: bytes) -> bytes:
    """Give the bytes that are signed. Only the body may have line breaks, so no two requests have the same."""
    return f"{SCHEME}\n{audience}\n{timestamp}\n{request_id}\n{method}\n{target}\n".encode(errors="surrogateescape") + body
