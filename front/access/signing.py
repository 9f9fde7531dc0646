"""Verifies requests that callers sign with a shared key.

    callers:
    - name: burst-controller
      groups: [ml-team]
      keys: [<hex of 32 bytes or more>]

The access file grants rights to the name and groups of a caller. A caller may have
several keys, so that one can be replaced. The front reloads the file when it changes.
Keys never appear in messages, histories or logs.

The signed text names an audience: the control plane that the request is for. Without
it, a request could be replayed at another control plane where the caller has the same
key.
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
from front.access.files import FileSection, Text, WatchedFile

CALLER, TIMESTAMP, REQUEST_ID, SIGNATURE = (
    "Modelplane-Caller",
    "Modelplane-Timestamp",
    "Modelplane-Request-Id",
    "Modelplane-Signature",
)
HEADERS = (CALLER, TIMESTAMP, REQUEST_ID, SIGNATURE)
SCHEME = "v1"
"""The first line of the signed text.

A new signing scheme needs a new value, so that no signature is valid for both.
"""
WINDOW_SECONDS = 300
"""The maximum difference between a request's timestamp and the current time."""

_TIMESTAMP = re.compile("[0-9]{1,12}")
_REQUEST_ID = re.compile("[A-Za-z0-9._-]{16,64}")
_SIGNATURE = re.compile("[0-9a-f]{64}")
# Unknown callers are compared with this key, so that timing does not reveal names.
_NOBODY = (b"\0" * 32,)

Key = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2}){32,128}$")]


class SigningCaller(FileSection):
    """A program that signs requests, with its keys."""

    name: Text
    groups: tuple[Text, ...] = ()
    keys: Annotated[tuple[Key, ...], Field(min_length=1, max_length=8, repr=False)]


class CallersFile(FileSection):
    """The content of the callers file."""

    callers: tuple[SigningCaller, ...] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        if len({caller.name for caller in self.callers}) != len(self.callers):
            raise ValueError(
                "callers: a name occurs twice; list all keys of a caller in one entry"
            )
        return self


@dataclass(frozen=True)
class Presented:
    """The headers of a signed request.

    Each is well-formed, but the signature is not verified.
    """

    caller: str
    timestamp: str
    request_id: str
    signature: str


@dataclass(frozen=True)
class SignedRequest:
    """A request with a valid signature.

    The caller chooses `request_id`, and repeats it when it repeats the request.
    """

    user: User
    request_id: str


class BadSignature(Exception):
    """The signature, the caller or the time is invalid.

    The sender may read the message.
    """


class Callers:
    """The file of callers as it was last read."""

    def __init__(self, file: Path, audience: str) -> None:
        """Read the file.

        Signatures must be for `audience`, the name of this control plane. Raises
        `BadAccessFile`.
        """
        self._file, self._audience = WatchedFile(file, CallersFile), audience

    def refresh(self) -> str:
        """Reload the file if it has changed; return its error, or an empty string."""
        return self._file.refresh()

    def verify(
        self, presented: Presented, method: str, target: str, body: bytes, now: float
    ) -> SignedRequest:
        """Return the verified request.

        `target` is the path and query as they were sent, `now` is in seconds since
        1970. Raises `BadSignature`.
        """
        # The time is checked again because the body may have arrived slowly. Repeated
        # requests are recognized only for a limited time.
        _check_time(presented, now)
        callers = self._file.content.callers
        known = next((each for each in callers if each.name == presented.caller), None)
        keys = [bytes.fromhex(key) for key in known.keys] if known else _NOBODY
        signed = signed_text(
            self._audience,
            presented.timestamp,
            presented.request_id,
            method=method,
            target=target,
            body=body,
        )
        # All keys are compared, so that timing does not reveal which one is used.
        matches = [
            hmac.compare_digest(
                hmac.digest(key, signed, hashlib.sha256).hex(), presented.signature
            )
            for key in keys
        ]
        if known is None or not any(matches):
            raise BadSignature("the caller is unknown or the signature is invalid")
        return SignedRequest(
            User(known.name, (*known.groups, AUTHENTICATED)), presented.request_id
        )


def presented_in(headers: Mapping[str, str], now: float) -> Presented:
    """Parse the headers of a signed request before its body is read.

    `now` is in seconds since 1970. Raises `BadSignature`.
    """
    presented = Presented(*(headers.get(name, "") for name in HEADERS))
    shapes = (
        (TIMESTAMP, _TIMESTAMP, presented.timestamp),
        (REQUEST_ID, _REQUEST_ID, presented.request_id),
        (SIGNATURE, _SIGNATURE, presented.signature),
    )
    wrong = [] if presented.caller else [CALLER]
    wrong += [name for name, shape, value in shapes if not shape.fullmatch(value)]
    if wrong:
        raise BadSignature(f"missing or malformed headers: {', '.join(wrong)}")
    _check_time(presented, now)
    return presented


def _check_time(presented: Presented, now: float) -> None:
    if abs(now - int(presented.timestamp)) > WINDOW_SECONDS:
        raise BadSignature(
            f"{TIMESTAMP} differs from the current time by more than {WINDOW_SECONDS} s; "
            "sign the request again"
        )


def signed_text(
    audience: str,
    timestamp: str,
    request_id: str,
    *,
    method: str,
    target: str,
    body: bytes,
) -> bytes:
    """Return the bytes that are signed.

    Only the body may contain line breaks, so different requests have different texts.
    """
    return (
        f"{SCHEME}\n{audience}\n{timestamp}\n{request_id}\n{method}\n{target}\n".encode(
            errors="surrogateescape"
        )
        + body
    )
