"""Secrets as files: `<root>/<namespace>/<name>/<key>`.

This store is meant for one machine. Kubernetes mounts a Secret in the same layout, so
the store can also read a mounted volume (which has no metadata file and whose keys are
symbolic links). Folders have mode 0700 and files 0600. Every file is written under a
temporary name and renamed, so that a reader gets either the old or the new value. The
store uses names that begin with two dots itself, because no key may have such a name.
"""

import asyncio
import hashlib
import hmac
import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from activities.secrets.store import (
    METADATA_FILE,
    OPAQUE,
    SecretInfo,
    SecretKind,
    SecretMissing,
    SecretStore,
    StoredSecret,
    check_names,
)
from api_types.errors import NameConflict

_DIGEST_KEY_FILE = "..digest-key"
_DIGEST_KEY_BYTES = 32
_VERSION_LENGTH = 16
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600


class SecretDirectory(SecretStore):
    def __init__(self, root: Path) -> None:
        self._root = root

    async def get(self, namespace: str, name: str, key: str) -> bytes:
        """Return one value. Raises SecretMissing."""
        check_names(namespace, name, (key,))
        return await asyncio.to_thread(self._get, namespace, name, key)

    async def read(self, namespace: str, name: str) -> StoredSecret:
        """Return a whole entry. Raises SecretMissing."""
        check_names(namespace, name)
        return await asyncio.to_thread(self._read, namespace, name)

    async def put(self, secret: StoredSecret) -> None:
        check_names(secret.namespace, secret.name, tuple(secret.data))
        await asyncio.to_thread(self._put, secret)

    async def delete(self, kind: SecretKind, namespace: str, name: str) -> bool:
        """Delete an entry of this kind. Returns False if there was none."""
        check_names(namespace, name)
        return await asyncio.to_thread(self._delete, kind, namespace, name)

    async def list(self, namespace: str = "") -> Sequence[SecretInfo]:
        """Describe the entries of one namespace, or of all."""
        return await asyncio.to_thread(self._list, namespace)

    async def describe(self, namespace: str, name: str) -> SecretInfo | None:
        """Describe an entry without its values. Returns None if there is none."""
        check_names(namespace, name)
        try:
            return self._info(await asyncio.to_thread(self._read, namespace, name))
        except SecretMissing:
            return None

    def _get(self, namespace: str, name: str, key: str) -> bytes:
        folder = self._root / namespace / name
        try:
            return (folder / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            if not folder.is_dir():
                raise SecretMissing(namespace, name) from None
            keys = ", ".join(_keys(folder)) or "none"
            raise SecretMissing(
                namespace, name, key, detail=f"its keys are {keys}"
            ) from None

    def _read(self, namespace: str, name: str) -> StoredSecret:
        folder = self._root / namespace / name
        if not folder.is_dir():
            raise SecretMissing(namespace, name)
        metadata = _metadata(folder)
        labels = metadata.get("labels")
        return StoredSecret(
            namespace=namespace,
            name=name,
            data={key: (folder / key).read_bytes() for key in _keys(folder)},
            type=str(metadata.get("type") or OPAQUE),
            labels=labels if isinstance(labels, dict) else {},
            kind=_kind(metadata),
        )

    def _put(self, secret: StoredSecret) -> None:
        folder = self._root / secret.namespace / secret.name
        if folder.is_dir():
            taken_by = _kind(_metadata(folder))
            if taken_by != secret.kind:
                raise NameConflict(
                    f"{secret.kind} {secret.namespace}/{secret.name}: the name is taken "
                    f"by a {taken_by} in the secret store; "
                    "delete that one or choose another name"
                )
        for place in (self._root, folder.parent):
            place.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        if not folder.is_dir() and _create(folder, secret):
            return
        _fill(folder, secret)

    def _delete(self, kind: SecretKind, namespace: str, name: str) -> bool:
        folder = self._root / namespace / name
        if not folder.is_dir() or _kind(_metadata(folder)) != kind:
            return False
        # Rename the entry first, so that no reader gets a part of a secret that is
        # being deleted.
        deleting = folder.with_name(f"..deleting-{secrets.token_hex(8)}")
        folder.rename(deleting)
        shutil.rmtree(deleting)
        return True

    def _list(self, namespace: str) -> Sequence[SecretInfo]:
        if not self._root.is_dir():
            return []
        namespaces = [namespace] if namespace else sorted(_visible_folders(self._root))
        found = []
        for each in namespaces:
            folder = self._root / each
            names = sorted(_visible_folders(folder)) if folder.is_dir() else []
            found += [self._info(self._read(each, name)) for name in names]
        return found

    def _info(self, secret: StoredSecret) -> SecretInfo:
        content = hmac.new(self._digest_key(), digestmod=hashlib.sha256)
        parts: list[str | bytes] = [secret.kind, secret.type]
        for key in sorted(secret.data):
            parts += [key, secret.data[key]]
        for part in parts:
            raw = part if isinstance(part, bytes) else part.encode()
            content.update(len(raw).to_bytes(8, "big") + raw)
        return SecretInfo(
            namespace=secret.namespace,
            name=secret.name,
            kind=secret.kind,
            type=secret.type,
            labels=secret.labels,
            keys=tuple(sorted(secret.data)),
            version=content.hexdigest()[:_VERSION_LENGTH],
        )

    def _digest_key(self) -> bytes:
        """Return the key of the version digests.

        Without a key, a short value could be guessed from its digest.
        """
        place = self._root / _DIGEST_KEY_FILE
        if not place.exists():
            _write(place, secrets.token_bytes(_DIGEST_KEY_BYTES), replace=False)
        return place.read_bytes()


def _visible_folders(folder: Path) -> list[str]:
    return [
        entry.name
        for entry in folder.iterdir()
        if entry.is_dir() and not entry.name.startswith(".")
    ]


def _keys(folder: Path) -> list[str]:
    return sorted(
        entry.name
        for entry in folder.iterdir()
        if entry.is_file()
        and entry.name != METADATA_FILE
        and not entry.name.startswith("..")
    )


def _metadata(folder: Path) -> Mapping[str, object]:
    try:
        found = json.loads((folder / METADATA_FILE).read_text())
    except FileNotFoundError:
        return {}
    return found if isinstance(found, dict) else {}


def _kind(metadata: Mapping[str, object]) -> SecretKind:
    """Return the kind of an entry. A mounted volume without metadata is a Secret."""
    return "ConfigMap" if metadata.get("kind") == "ConfigMap" else "Secret"


def _create(folder: Path, secret: StoredSecret) -> bool:
    """Create a whole entry, which no reader sees in part.

    Returns False if another writer has created it in the meantime.
    """
    beside = folder.with_name(f"..new-{secrets.token_hex(8)}")
    beside.mkdir(mode=_FOLDER_MODE)
    _fill(beside, secret)
    try:
        beside.rename(folder)
    except OSError:
        shutil.rmtree(beside)
        if not folder.is_dir():
            raise
        return False
    return True


def _fill(folder: Path, secret: StoredSecret) -> None:
    for key, value in secret.data.items():
        _write(folder / key, value)
    for key in _keys(folder):
        if key not in secret.data:
            (folder / key).unlink(missing_ok=True)
    metadata = {"kind": secret.kind, "type": secret.type, "labels": dict(secret.labels)}
    _write(folder / METADATA_FILE, json.dumps(metadata, sort_keys=True).encode())


def _write(place: Path, content: bytes, *, replace: bool = True) -> None:
    beside = place.with_name(f"..new-{secrets.token_hex(8)}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        if replace:
            beside.replace(place)
        else:
            # The first of several writers wins. The others read its key.
            try:
                place.hardlink_to(beside)
            except FileExistsError:
                return
    finally:
        beside.unlink(missing_ok=True)
