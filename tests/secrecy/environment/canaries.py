"""The secret values of a run, and the search for them.

No list names the values. They are the whole content of the secret store and of the key
files.
"""

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

# The search also finds pieces of a value, because programs cut or wrap texts.
PIECE = 24


@dataclass
class Canaries:
    """Secret values by their place."""

    values: dict[str, str] = field(default_factory=dict)

    def add(self, where: str, value: str) -> None:
        """Add a value and its inner secrets: credentials of a kubeconfig, logins of a
        docker config.
        """
        for part, inner in _parts(where, value):
            self.values[part] = inner

    def add_store(self, folder: Path) -> None:
        """Add every value of a secret store.

        Call it again after each change, because replaced values stay secret.
        """
        for file in sorted(folder.glob("*/*/*")):
            if not file.name.startswith("."):
                content = file.read_bytes().decode()
                self.add(
                    f"{file.relative_to(folder)} "
                    f"{hashlib.sha256(content.encode()).hexdigest()[:8]}",
                    content,
                )

    def seen_in(self, text: str) -> list[str]:
        """Return the names of values with a piece in the text, in any form that
        programs write.
        """
        return sorted(
            {
                where
                for where, value in self.values.items()
                for form in _forms(value)
                if form in text
            }
        )


def _parts(where: str, value: str) -> Iterator[tuple[str, str]]:
    if '"auths"' in value:
        for host, entry in json.loads(value)["auths"].items():
            yield f"{where} login for {host}", entry["auth"]
            yield (
                f"{where} password for {host}",
                base64.b64decode(entry["auth"]).decode().partition(":")[2],
            )
    elif "users:" in value or '"users"' in value:
        try:
            users = yaml.safe_load(value)["users"]
        except (yaml.YAMLError, ValueError):
            users = [
                {"user": {"token": found}}
                for found in re.findall(r"token: (?:!!int )?(\S+)", value)
            ]
        for user in users:
            for key, content in user["user"].items():
                if isinstance(content, str) and key != "client-certificate-data":
                    yield f"{where} {key}", content
                    if key.endswith("-data"):
                        yield (
                            f"{where} {key} decoded",
                            base64.b64decode(content).decode().splitlines()[1],
                        )
    else:
        yield where, value


@cache
def _forms(value: str) -> frozenset[str]:
    """Return the beginning and the middle of a value, plain and encoded."""
    value = value.strip()
    pieces = (
        {value[:PIECE], value[len(value) // 2 :][:PIECE]}
        if len(value) >= 2 * PIECE
        else {value}
    )
    return frozenset(form for piece in pieces for form in _forms_of(piece))


def _forms_of(piece: str) -> Iterator[str]:
    yield piece
    yield quote(piece, safe="")
    yield json.dumps(piece)[1:-1]
    yield piece.encode().hex()
    # Base64 depends on the preceding bytes. Without the first and last characters all
    # three phases match.
    for phase in range(3):
        encoded = (
            base64.b64encode(b"\0" * phase + piece.encode())
            .decode()
            .rstrip("=")[4 if phase else 0 : -2]
        )
        yield encoded
        yield encoded.replace("+", "-").replace("/", "_")


async def decoded(tree: Any, codec: PayloadCodec | None) -> list[str]:
    """Return all payloads of a history or a workflow description.

    Each payload appears as stored, decrypted and unpacked.
    """
    payloads = [
        Payload(
            metadata=_bytes(each.get("metadata", {})), data=_byte(each.get("data", ""))
        )
        for each in _payloads(tree)
    ]
    opened = await codec.decode(payloads) if codec else payloads
    texts = [payload.data.decode(errors="replace") for payload in [*payloads, *opened]]
    return [*texts, *(packed for text in texts for packed in unpacked(text))]


def unpacked(text: str) -> Iterator[str]:
    """Return the unpacked parts of a JSON text, because compression hides values."""
    try:
        tree = json.loads(text)
    except ValueError:
        return
    for leaf in _texts(tree):
        for decode in (base64.b85decode, base64.b64decode):
            try:
                inner = zlib.decompress(decode(leaf)).decode(errors="replace")
            except (ValueError, zlib.error):
                continue
            yield inner
            yield from unpacked(inner)


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict | list):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from _texts(item)


def _payloads(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        if isinstance(tree.get("metadata"), dict) and "encoding" in tree["metadata"]:
            yield tree
        for value in tree.values():
            yield from _payloads(value)
    elif isinstance(tree, list):
        for item in tree:
            yield from _payloads(item)


def _bytes(metadata: dict[str, str]) -> dict[str, bytes]:
    return {key: _byte(value) for key, value in metadata.items()}


def _byte(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return text.encode()


def texts_of(folder: Path, without: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Return each file below a folder with its content, except below excluded folders."""
    left_out = tuple(without)
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not any(file.is_relative_to(one) for one in left_out):
            yield file, file.read_bytes().decode(errors="replace")
