"""The machine-readable outputs `-o yaml`, `-o json` and `-o name`.

Scripts depend on them, so they do not depend on the terminal.
"""

import io
import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from ruamel.yaml import YAML

from api_types.text.printable import escaped
from fleet_client.refs.tree import Tree, clean

_YAML_WIDTH = 140


class Format(StrEnum):
    """The values of `-o`. `wide` adds columns to the table."""

    TABLE = "table"
    WIDE = "wide"
    YAML = "yaml"
    JSON = "json"
    NAME = "name"


class ReportFormat(StrEnum):
    """The values of `-o` for a report, which has no names."""

    TABLE = "table"
    WIDE = "wide"
    YAML = "yaml"
    JSON = "json"


class TreeFormat(StrEnum):
    """The values of `-o` for a tree."""

    YAML = "yaml"
    JSON = "json"


def as_yaml(value: Any) -> str:
    """Return YAML in block style, in the order of the tree."""
    text = _yaml(value, allow_unicode=True)
    # YAML keeps some characters that no terminal should get.
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
    """Return JSON with sorted keys, so that two outputs can be compared."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    # JSON escapes fewer characters than a terminal needs.
    if text == escaped(text, "\n"):
        return text
    return json.dumps(value, indent=2, sort_keys=True)


def render(trees: Sequence[Tree], style: Format | TreeFormat, *, single: bool) -> str:
    """Return objects in a machine-readable form."""
    shown = [clean(tree) for tree in trees]
    if style == Format.NAME:
        return "\n".join(
            f"{tree['kind'].lower()}/{tree['metadata']['name']}" for tree in shown
        )
    value = one_or_list(trees, single=single)
    return as_json(value) if style in {Format.JSON, TreeFormat.JSON} else as_yaml(value)


def one_or_list(trees: Sequence[Tree], *, single: bool) -> Tree:
    """Return a single named object alone, and several as a `v1 List`, as kubectl does."""
    shown = [clean(tree) for tree in trees]
    if single and len(shown) == 1:
        return shown[0]
    return {"apiVersion": "v1", "kind": "List", "items": shown}


def shown(value: Any) -> str:
    """Return a value as kubectl prints it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
