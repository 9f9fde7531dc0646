"""Admit Secrets and ConfigMaps to the secret store.

No error or warning ever contains one of their values.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from api_types.hints import nearest
from api_types.resources.secrets import ConfigMap, DataManifest, Secret
from api_types.text.reader import is_unicode
from api_types.validation.admission import Admitted, title
from api_types.validation.normalize import (
    NotStorable,
    drop_server_fields,
    without_nulls,
)
from api_types.validation.problems import InvalidManifest, Problem
from api_types.validation.rules.metadata import is_dns_label

STORED: Mapping[str, type[DataManifest]] = {"Secret": Secret, "ConfigMap": ConfigMap}

# Kubernetes' own limits.
NAME_MAX = 253
KEY_MAX = 253
SIZE_MAX = 1024 * 1024

_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_BASE64_FIELDS = frozenset({("Secret", "data"), ("ConfigMap", "binaryData")})
_WORDS = {
    "missing": "required field is missing",
    "string_type": "must be a string; quote it",
    "dict_type": "must be an object",
}


def admit_stored(document: Mapping[Any, Any], namespace: str = "default") -> Admitted:
    """Admit a v1 Secret or ConfigMap.

    Raises:
        InvalidManifest: it contains every problem of the object.

    """
    kind = str(document["kind"])
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    where, name = metadata.get("namespace") or namespace, metadata.get("name")
    who = title(
        kind,
        where if isinstance(where, str) else namespace,
        name if isinstance(name, str) and name else "(no name)",
    )
    try:
        raw = without_nulls(document)
    except NotStorable as error:
        raise InvalidManifest([Problem(who, "", str(error))]) from None
    drop_server_fields(raw)
    if isinstance(raw.get("metadata", {}), dict):
        raw["metadata"] = {**raw.get("metadata", {}), "namespace": where}
    problems = [Problem(who, path, text) for path, text in _problems(kind, raw)]
    try:
        manifest = STORED[kind].model_validate(
            raw, extra="forbid", by_alias=True, by_name=False
        )
    except ValidationError as error:
        found = error.errors(include_input=False)
        problems += [_structure(who, STORED[kind], one) for one in found]
        raise InvalidManifest(problems) from None
    if problems:
        raise InvalidManifest(problems)
    return Admitted(manifest)


def _structure(who: str, model: type[DataManifest], error: Any) -> Problem:
    path = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        fields = [info.alias or name for name, info in model.model_fields.items()]
        meant = nearest(str(error["loc"][-1]), fields)
        hint = f", did you mean {meant}?" if meant else ""
        return Problem(who, path, f"unknown field{hint}")
    return Problem(who, path, _WORDS.get(error["type"], "has the wrong type"))


def _problems(kind: str, raw: Mapping[str, Any]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    metadata = raw.get("metadata", {})
    if isinstance(metadata, Mapping):
        name, namespace = metadata.get("name"), metadata.get("namespace")
        if isinstance(name, str) and (
            len(name) > NAME_MAX or not _NAME.fullmatch(name)
        ):
            text = f"must be a DNS subdomain of at most {NAME_MAX} characters"
            found.append(("metadata.name", text))
        if isinstance(namespace, str) and not is_dns_label(namespace):
            text = "must be a DNS label: lower-case letters, digits, hyphen"
            found.append(("metadata.namespace", text))
    size = 0
    for field in ("data", "stringData", "binaryData"):
        held = raw.get(field)
        if not isinstance(held, Mapping):
            continue
        for key, value in held.items():
            path = f"{field}.{key}"
            if not _is_key(key):
                text = "key must be letters, digits, hyphen, underscore or dot"
                found.append((path, text))
            if not isinstance(value, str):
                continue
            if not is_unicode(value):
                found.append((path, "must be text that UTF-8 can encode"))
                continue
            size += len(value.encode())
            if (kind, field) in _BASE64_FIELDS and not _is_base64(value):
                text = "value is not base64"
                if kind == "Secret":
                    text += "; write plain text under stringData"
                found.append((path, text))
    if size > SIZE_MAX:
        text = f"values together must be at most {SIZE_MAX} bytes, got {size}"
        found.append(("data", text))
    return found


def _is_key(key: object) -> bool:
    if not isinstance(key, str) or len(key) > KEY_MAX:
        return False
    return _KEY.fullmatch(key) is not None and set(key) != {"."}


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True
