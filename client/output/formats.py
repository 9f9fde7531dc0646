"""The machine-readable outputs `-o yaml`, `-o json`, `-o name`. Scripts depend on them, so they never depend on the terminal."""

import io
import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from ruamel.yaml import YAML

from api_types.text.printable import escaped
from client.refs.tree import Tree, clean

_YAML_WIDTH = 140


class Format(StrEnum):
    """What `-o` takes; `wide` adds columns to the table."""

    TABLE = "table"
    WIDE = "wide"
    YAML = "yaml"
    JSON = "json"
    NAME = "name"


class ReportFormat(StrEnum):
    """What `-o` takes where a report is printed, which has no names of its own."""

    TABLE = "table"
    WIDE = "wide"
    YAML = "yaml"
    JSON = "json"


class TreeFormat(StrEnum):
    """What `-o` takes where there is only a tree to print."""

    YAML = "yaml"
    JSON = "json"


def as_yaml(value: Any) -> str:
    """Give YAML that people can read: block style, in the order of the tree."""
    text = _yaml(value, allow_unicode=True)
    # YAML writes some characters as they are that no terminal should get.
    return text if text == escaped(text, "\n") else _yaml(value, allow_unicode=False)


def _yaml(value: Any, *, allow_unicode: bool) -> str:
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = _YAML_WIDTH
    yaml.allow_unicode = allow_unicode
    stream = io.StringIO()
    yaml.dump(value, stream)
    return stream.getvalue().rstrip("\n").removesuffix("\n...")


def as_json(value: Any) -> str:
    """Give JSON with sorted keys, so that two outputs can be compared."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    # JSON itself escapes less than a terminal needs.
    return text if text == escaped(text, "\n") else json.dumps(value, indent=2, sort_keys=True)


def render(trees: Sequence[Tree], style: Format | TreeFormat, *, single: bool) -> str:
    """Give objects in a machine-readable form: a single named object as it is, several as a `v1 List` as kubectl writes it."""
    shown = [clean(tree) for tree in trees]
    if style == Format.NAME:
        return "\n".join(f"{tree['kind'].lower()}/{tree['metadata']['name']}" for tree in shown)
    value: Any = shown[0] if single and len(shown) == 1 else {"apiVersion": "v1", "kind": "List", "items": shown}
    return as_json(value) if style in {Format.JSON, TreeFormat.JSON} else as_yaml(value)
