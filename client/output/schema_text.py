"""A part of a kind's JSON Schema as text, in the form of `kubectl explain`."""

import textwrap
from collections.abc import Iterator, Sequence

from api_types.hints import nearest
from api_types.resources.kinds import KindInfo
from fleet_client.errors import Refused
from fleet_client.refs.tree import Tree

_INDENT = "  "
_WIDTH = 92
# The types of JSON in the words of kubectl.
_WORDS = {"object": "Object", "array": "[]"}


def schema_lines(
    info: KindInfo, schema: Tree, path: Sequence[str], *, recursive: bool
) -> list[str]:
    """Return the lines about the field at a path, or about a kind without a path.

    Raise `Refused` with the nearest field for a path that does not exist.
    """
    node, required = schema, False
    for at, name in enumerate(path):
        fields = _fields(node)
        if name not in fields:
            raise _unknown(info, path[:at], name, fields)
        required = name in _object_of(node).get("required", ())
        node = fields[name]
    lines = [f"KIND:     {info.kind}", f"VERSION:  {info.api_version}"]
    if path:
        lines += ["", f"FIELD: {_titled(path[-1], node, required=required)}"]
    lines += ["", "DESCRIPTION:", *_wrapped(_about(node), _INDENT)]
    fields = _fields(node)
    if fields:
        lines += ["", "FIELDS:"]
        lines += _recursive(node, 1) if recursive else _with_descriptions(node)
    return lines


def fields_at(schema: Tree, path: Sequence[str]) -> list[str]:
    """Return the names of the fields below a path, none for an unknown path."""
    node: Tree = schema
    for name in path:
        node = _fields(node).get(name, {})
    return list(_fields(node))


def _with_descriptions(node: Tree) -> Iterator[str]:
    required = _object_of(node).get("required", ())
    for name, field in _fields(node).items():
        yield _INDENT + _titled(name, field, required=name in required)
        yield from _wrapped(_about(field), _INDENT * 2)


def _recursive(node: Tree, depth: int) -> Iterator[str]:
    required = _object_of(node).get("required", ())
    for name, field in _fields(node).items():
        yield _INDENT * depth + _titled(name, field, required=name in required)
        yield from _recursive(field, depth + 1)


def _titled(name: str, node: Tree, *, required: bool) -> str:
    return f"{name} <{_type(node)}>{' -required-' if required else ''}"


def _type(node: Tree) -> str:
    if "items" in node:
        return f"[]{_type(node['items'])}"
    if isinstance(node.get("additionalProperties"), dict):
        return f"map[string]{_type(node['additionalProperties'])}"
    if "anyOf" in node:
        return " or ".join(dict.fromkeys(map(_type, node["anyOf"])))
    written = str(node.get("type", "any"))
    return _WORDS.get(written, written)


def _about(node: Tree) -> str:
    """Return the description of a field, with its choices, bounds and default."""
    held = node.get("items", node)
    parts = [str(node.get("description") or "<no description>")]
    if "enum" in held:
        parts.append(f"One of: {', '.join(map(str, held['enum']))}.")
    for key, word in (("minimum", "At least"), ("maximum", "At most")):
        if key in held:
            parts.append(f"{word} {held[key]}.")
    if node.get("default") not in (None, "", [], {}):
        parts.append(f"Default: {node['default']}.")
    return " ".join(parts)


def _object_of(node: Tree) -> Tree:
    """Return the schema that has the fields of a field: that of its items or values."""
    while True:
        below = node.get("items") or node.get("additionalProperties")
        if "properties" in node or not isinstance(below, dict):
            return node
        node = below


def _fields(node: Tree) -> Tree:
    found = _object_of(node)
    if "properties" in found:
        properties: Tree = found["properties"]
        return properties
    choices = [_fields(choice) for choice in found.get("anyOf", ())]
    return {name: field for fields in choices for name, field in fields.items()}


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)


def _unknown(info: KindInfo, above: Sequence[str], name: str, fields: Tree) -> Refused:
    where = ".".join((info.short, *above))
    if not fields:
        return Refused(
            f"{where} has no fields that this schema describes, and {name!r} is none",
            next_step=f"`modelplane explain {where}` describes it",
        )
    close = nearest(name, fields)
    hint = f"; did you mean {close}?" if close else ""
    return Refused(
        f"{where} has no field {name!r}{hint}",
        next_step=f"`modelplane explain {where}` lists its fields",
    )
