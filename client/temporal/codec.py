"""Encryption of the payloads that Temporal stores.

Each payload is encrypted with AES-256-GCM under the active key. The id of the key is in the metadata, so that older keys still decrypt what
they encrypted, and keys can be rotated one program at a time: configure the new key everywhere, then make it the active one.

Search attributes are not encrypted: Temporal has to search them. Nor are the texts of failures, which hold no secret: the SDK decrypts
neither those of queries nor those of tasks, and without them no operator could tell why a workflow stands still.

A payload is bound to its workflow: the id of that is in the metadata too, and authenticated. What was encrypted for one workflow is not
taken by another, nor by its activities. What earlier versions encrypted names no workflow, and is read everywhere.

A payload that cannot be decrypted becomes one of `api_types.payloads.unreadable`, never an error: an error here stops the workflow that
was sent it.

* Signals, updates, queries, starts and activities' arguments that cannot be decrypted are refused in words. So are those that are not
  encrypted where `required` is set; without it they are read, so that encryption can be switched on while objects live.
* A workflow that cannot decrypt what it carries, or the result of its activity, waits: its task fails until the key is back.
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
from temporalio.converter import PayloadCodec, SerializationContext, WithSerializationContext

from api_types.payloads import unreadable
from api_types.payloads.limits import shortened
from api_types.settings import EncryptionSettings
from client.errors import Refused

ENCODING = b"binary/encrypted"
KEY_ID = "encryption-key-id"
WORKFLOW_ID = "encryption-workflow-id"
_NONCE_BYTES = 12
_KEY_BYTES = 32
# What a problem quotes of metadata, which any client may have written.
_QUOTED_BYTES = 300


class _UndecryptedError(Exception):
    """Why a payload is not decrypted."""


class EncryptionCodec(PayloadCodec, WithSerializationContext):
    """Encrypts with the active key, decrypts with any known one. `keys` maps ids to 32 bytes."""

    def __init__(self, keys: Mapping[str, bytes], active: str, *, required: bool = False) -> None:
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}
        self._active = active
        self._required = required
        self._workflow_id: bytes | None = None

    def with_context(self, context: SerializationContext) -> "EncryptionCodec":
        """Give the codec for what one workflow and its activities are sent, and what they send."""
        bound = copy.copy(self)
        workflow_id: str | None = getattr(context, "workflow_id", None)
        bound._workflow_id = workflow_id.encode() if workflow_id else None  # noqa: SLF001 - of its own copy
        return bound

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt each payload with its metadata."""
        return [self._encrypt(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt payloads; what may not be read is given as `api_types.payloads.unreadable`."""
        return [self._decoded(payload) for payload in payloads]

    def _encrypt(self, payload: Payload) -> Payload:
        nonce = os.urandom(_NONCE_BYTES)
        metadata = {"encoding": ENCODING, KEY_ID: self._active.encode()}
        if self._workflow_id is not None:
            metadata[WORKFLOW_ID] = self._workflow_id
        encrypted = self._ciphers[self._active].encrypt(nonce, payload.SerializeToString(), _authenticated(metadata))
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
            problem = "a payload is not encrypted, and encryption.required is set: send it with the keys of this fleet"
            decoded = (
                _unreadable(problem, payload.SerializeToString()) if self._required else Payload.FromString(payload.SerializeToString())
            )
        decoded.metadata[unreadable.ARRIVAL_ID] = arrival_id.encode()
        return decoded

    def _decrypt(self, payload: Payload) -> Payload:
        key_id, workflow_id = payload.metadata.get(KEY_ID, b""), payload.metadata.get(WORKFLOW_ID)
        key = repr(_quoted(key_id))
        cipher = self._ciphers.get(key_id.decode(errors="replace"))
        if cipher is None:
            raise _UndecryptedError(f"a payload was encrypted with key {key}, which is not in encryption.keys: add the key's file there")
        if workflow_id is not None and self._workflow_id not in (None, workflow_id):
            raise _UndecryptedError(f"a payload was encrypted for {_quoted(workflow_id)}: send each workflow its own")
        try:
            plain = cipher.decrypt(payload.data[:_NONCE_BYTES], payload.data[_NONCE_BYTES:], _authenticated(payload.metadata))
            decrypted: Payload = Payload.FromString(plain)
        except (InvalidTag, ValueError, DecodeError) as error:
            raise _UndecryptedError(
                f"key {key} in encryption.keys is not the one that encrypted this payload, or the payload was changed"
            ) from error
        return decrypted


def _authenticated(metadata: Mapping[str, bytes]) -> bytes:
    """Give what is authenticated beside the data. A key id has no null byte, so no payload passes for one that is bound otherwise."""
    workflow_id = metadata.get(WORKFLOW_ID)
    return metadata[KEY_ID] if workflow_id is None else metadata[KEY_ID] + b"\0" + workflow_id


def _unreadable(problem: str, original: bytes = b"") -> Payload:
    return Payload(metadata={"encoding": unreadable.ENCODING, unreadable.PROBLEM: problem.encode()}, data=original)


def _quoted(text: bytes) -> str:
    return shortened(text.decode(errors="replace"), _QUOTED_BYTES)


def codec_of(settings: EncryptionSettings) -> EncryptionCodec | None:
    """Build the codec, or None when no key is set. Raises `Refused` naming every key file that cannot be used."""
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
        problems.append(f"encryption.activeKey: {settings.active_key!r} is not one of {_listed(settings.keys)}")
    if problems:
        raise Refused(
            "the encryption keys are not usable",
            details=problems,
            next_step="a key is 32 random bytes in base64 in a file, as `openssl rand -base64 32` writes them",
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
