"""Encryption of the payloads that Temporal stores.

Each payload is encrypted with AES-256-GCM under the active key. Its metadata names the
key, so older payloads stay readable, and keys can be rotated one program at a time:
configure the new key everywhere, then make it the active one.

Search attributes are not encrypted, because Temporal has to search them. Failure
messages are not encrypted either: they contain no secrets, the SDK does not decrypt
failures of queries and workflow tasks, and operators need them to find out why a
workflow is stuck.

A payload is bound to its workflow: the metadata contains the workflow id and is
authenticated. Other workflows and their activities reject the payload.

A payload that cannot be decrypted is replaced by an unreadable payload (see
`api_types.payloads.unreadable`). The codec does not raise, because an error would stop
the receiving workflow:

- Signals, updates, queries, starts and arguments of activities are rejected with a message
  if they cannot be decrypted. If `required` is set, unencrypted ones are rejected too.
  Otherwise they are accepted, so that encryption can be enabled in a running fleet.
- A workflow that cannot decrypt its state or the result of an activity waits: its task
  fails until the key is available again.
"""

import base64
import binascii
import copy
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
)

from api_types.payloads import unreadable
from api_types.payloads.limits import shortened
from api_types.sections.temporal import EncryptionSettings
from fleet_client.errors import Refused

ENCODING = b"binary/encrypted"
KEY_ID = "encryption-key-id"
WORKFLOW_ID = "encryption-workflow-id"
_NONCE_BYTES = 12
_KEY_BYTES = 32
# The part of the metadata that an error quotes. Any client may have written it.
_QUOTED_BYTES = 300


class _UndecryptedError(Exception):
    """A payload cannot be decrypted; the message says why."""


class EncryptionCodec(PayloadCodec, WithSerializationContext):
    """Encrypts with the active key, and decrypts with any known key.

    `keys` maps key ids to keys of 32 bytes.
    """

    def __init__(
        self, keys: Mapping[str, bytes], active: str, *, required: bool = False
    ) -> None:
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}
        self._active = active
        self._required = required
        self._workflow_id: bytes | None = None

    def with_context(self, context: SerializationContext) -> "EncryptionCodec":
        """Return the codec for the payloads of one workflow and its activities."""
        bound = copy.copy(self)
        workflow_id: str | None = getattr(context, "workflow_id", None)
        bound._workflow_id = workflow_id.encode() if workflow_id else None  # noqa: SLF001
        return bound

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt each payload with its metadata."""
        return [self._encrypt(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt payloads.

        Replace each payload that cannot be decrypted by an unreadable payload.
        """
        return [self._decoded(payload) for payload in payloads]

    def _encrypt(self, payload: Payload) -> Payload:
        nonce = os.urandom(_NONCE_BYTES)
        metadata = {"encoding": ENCODING, KEY_ID: self._active.encode()}
        if self._workflow_id is not None:
            metadata[WORKFLOW_ID] = self._workflow_id
        encrypted = self._ciphers[self._active].encrypt(
            nonce, payload.SerializeToString(), _authenticated(metadata)
        )
        return Payload(metadata=metadata, data=nonce + encrypted)

    def _decoded(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") == ENCODING:
            arrival_id = payload.data[:_NONCE_BYTES].hex()
            try:
                decoded = self._decrypt(payload)
            except _UndecryptedError as error:
                decoded = _unreadable(str(error))
        else:
            arrival_id = hashlib.sha256(payload.data).hexdigest()[: 2 * _NONCE_BYTES]
            problem = (
                "a payload is not encrypted, and encryption.required is set: send it "
                "with the keys of this fleet"
            )
            if self._required:
                decoded = _unreadable(problem, payload.SerializeToString())
            else:
                decoded = Payload.FromString(payload.SerializeToString())
        decoded.metadata[unreadable.ARRIVAL_ID] = arrival_id.encode()
        return decoded

    def _decrypt(self, payload: Payload) -> Payload:
        key_id = payload.metadata.get(KEY_ID, b"")
        workflow_id = payload.metadata.get(WORKFLOW_ID)
        key = repr(_quoted(key_id))
        cipher = self._ciphers.get(key_id.decode(errors="replace"))
        if cipher is None:
            raise _UndecryptedError(
                f"a payload was encrypted with key {key}, which is not in "
                "encryption.keys: add the key's file there"
            )
        if workflow_id is not None and self._workflow_id not in (None, workflow_id):
            raise _UndecryptedError(
                f"a payload was encrypted for {_quoted(workflow_id)}: send each workflow its own"
            )
        try:
            plain = cipher.decrypt(
                payload.data[:_NONCE_BYTES],
                payload.data[_NONCE_BYTES:],
                _authenticated(payload.metadata),
            )
            decrypted: Payload = Payload.FromString(plain)
        except (InvalidTag, ValueError, DecodeError) as error:
            raise _UndecryptedError(
                f"key {key} in encryption.keys is not the one that encrypted "
                "this payload, or the payload was changed"
            ) from error
        return decrypted


def _authenticated(metadata: Mapping[str, bytes]) -> bytes:
    """Return the additional authenticated data: the key id and the workflow id.

    A key id has no null byte, so the data with a workflow id and without one cannot be
    confused.
    """
    workflow_id = metadata.get(WORKFLOW_ID)
    if workflow_id is None:
        return metadata[KEY_ID]
    return metadata[KEY_ID] + b"\0" + workflow_id


def _unreadable(problem: str, original: bytes = b"") -> Payload:
    return Payload(
        metadata={
            "encoding": unreadable.ENCODING,
            unreadable.PROBLEM: problem.encode(),
        },
        data=original,
    )


def _quoted(text: bytes) -> str:
    return shortened(text.decode(errors="replace"), _QUOTED_BYTES)


def codec_of(settings: EncryptionSettings) -> EncryptionCodec | None:
    """Return the codec, or None if no key is set.

    Raise `Refused` with all unusable key files.
    """
    if not settings.keys and not settings.active_key and not settings.required:
        return None
    keys: dict[str, bytes] = {}
    problems: list[str] = []
    for key_id, file in settings.keys.items():
        try:
            keys[key_id] = _read(file)
        except (OSError, ValueError) as error:
            problems.append(f"encryption.keys.{key_id}: {file}: {error}")
    if settings.active_key not in settings.keys:
        problems.append(
            f"encryption.activeKey: {settings.active_key!r} is not one of {_listed(settings.keys)}"
        )
    if problems:
        raise Refused(
            "the encryption keys are not usable",
            details=problems,
            next_step=(
                "a key is 32 random bytes in base64 in a file, as `openssl rand "
                "-base64 32` writes them"
            ),
        )
    return EncryptionCodec(keys, settings.active_key, required=settings.required)


def _read(file: Path) -> bytes:
    try:
        key = base64.b64decode(file.expanduser().read_text().strip(), validate=True)
    except binascii.Error:
        raise ValueError("is not base64") from None
    if len(key) != _KEY_BYTES:
        raise ValueError(f"has {len(key)} bytes, a key has {_KEY_BYTES}")
    return key


def _listed(keys: Iterable[str]) -> str:
    return ", ".join(sorted(keys)) or "the keys (there are none)"
