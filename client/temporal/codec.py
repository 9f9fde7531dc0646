"""Encryption of the payloads that Temporal stores.

Each payload is encrypted with AES-256-GCM under the active key. The id of the key is in the metadata, so that older keys still decrypt what
they encrypted, and keys can be rotated one program at a time: configure the new key everywhere, then make it the active one. Search
attributes are not encrypted: Temporal has to search them.
"""

import base64
import binascii
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from api_types.settings import EncryptionSettings
from client.errors import Refused

ENCODING = b"binary/encrypted"
KEY_ID = "encryption-key-id"
_NONCE_BYTES = 12
_KEY_BYTES = 32


class UnknownKey(ValueError):
    """A payload was encrypted with a key that this program does not have."""


class EncryptionCodec(PayloadCodec):
    """Encrypts with the active key, decrypts with any known one. `keys` maps ids to 32 bytes."""

    def __init__(self, keys: Mapping[str, bytes], active: str) -> None:
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}
        self._active = active

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt each payload with its metadata."""
        return [self._encrypt(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt payloads; one that was stored before encryption was switched on is returned as it is. Raises UnknownKey."""
        return [self._decrypt(payload) for payload in payloads]

    def _encrypt(self, payload: Payload) -> Payload:
        nonce = os.urandom(_NONCE_BYTES)
        encrypted = self._ciphers[self._active].encrypt(nonce, payload.SerializeToString(), self._active.encode())
        return Payload(metadata={"encoding": ENCODING, KEY_ID: self._active.encode()}, data=nonce + encrypted)

    def _decrypt(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING:
            return payload
        key_id = payload.metadata[KEY_ID].decode()
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise UnknownKey(f"a payload was encrypted with key {key_id!r}, which is not in encryption.keys: add the key's file there")
        try:
            plain = cipher.decrypt(payload.data[:_NONCE_BYTES], payload.data[_NONCE_BYTES:], key_id.encode())
        except InvalidTag as error:
            raise UnknownKey(f"key {key_id!r} in encryption.keys is not the one that encrypted this payload") from error
        decrypted: Payload = Payload.FromString(plain)
        return decrypted


def codec_of(settings: EncryptionSettings) -> EncryptionCodec | None:
    """Build the codec, or None when no key is set. Raises `Refused` naming every key file that cannot be used."""
    if not settings.keys and not settings.active_key:
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
        raise Refused("the encryption keys are not usable", details=problems, next_step="a key is 32 random bytes in base64 in a file")
    return EncryptionCodec(keys, settings.active_key)


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
