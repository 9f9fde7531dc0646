"""A digest of the fields of an object that Modelplane owns.

An API server fills in defaults, controllers add status, and users add labels. These
changes are not drift, and another apply would not revert them. The server records which
fields each manager owns. When another manager writes a field, the server removes it
from Modelplane's fields, even if the value is the same. So the digest covers exactly
the fields that server-side apply records for Modelplane, with their values. It differs
from the digest after Modelplane's apply if, and only if, another apply would change
something.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from api_types.digests import short_hash
from api_types.labels import FIELD_MANAGER

# The contents of a Secret are neither watched nor hashed. The owners of the fields are
# enough to detect a change.
_METADATA_ONLY = frozenset({"Secret"})
# More fields would not describe the other writer better.
_FIELDS_NAMED_MAX = 3
# A field set without fields. An empty set would name all fields.
_NOTHING: Mapping[str, Any] = {".": {}}


def content_digest(item: Mapping[str, Any]) -> str:
    """Return 16 hex digits over the fields of a stored object that Modelplane owns.

    Needs `metadata.managedFields`.
    """
    fields = _owned_fields(item)
    hidden = item.get("kind") in _METADATA_ONLY
    content = (
        [fields, _project({"metadata": item["metadata"]}, fields)]
        if hidden
        else _project(item, fields)
    )
    return short_hash(content)


def owned_part(item: Mapping[str, Any], *path: str) -> Any:
    """Return the part of a stored object that the last apply wrote at a path, or None.

    Applying it again changes nothing there, even if others have added fields since.
    """
    fields: Mapping[str, Any] = _owned_fields(item)
    value: Any = item
    for name in path:
        if (
            f"f:{name}" not in fields
            or not isinstance(value, Mapping)
            or name not in value
        ):
            return None
        fields, value = fields[f"f:{name}"], value[name]
    return _owned(value, fields)


def elements_of_others(item: Mapping[str, Any], *path: str) -> list[Any]:
    """Return the elements of a stored list whose keys the last apply does not name."""
    fields: Mapping[str, Any] = _owned_fields(item)
    value: Any = item
    for name in path:
        fields, value = fields.get(f"f:{name}", {}), value.get(name, {})
    ours = [_element(list(value), name) for name in fields if name != "."]
    return [element for element in value if element not in ours]


def overwritten_fields(
    before: Mapping[str, Any], applied: Mapping[str, Any]
) -> list[str]:
    """Return the fields of other managers that an apply took back.

    The form is `spec.replicas by kubectl-scale`. `before` and `applied` are the stored
    object immediately before and after that apply.
    """
    regained = set(_paths(_owned_fields(applied))) - set(_paths(_owned_fields(before)))
    others = [
        entry
        for entry in before["metadata"].get("managedFields") or []
        if not _is_our_apply(entry)
    ]
    named = []
    for entry in others:
        paths = sorted(regained.intersection(_paths(entry.get("fieldsV1") or {})))
        shown = paths[:_FIELDS_NAMED_MAX]
        named += [f"{_dotted(path)} by {entry['manager']}" for path in shown]
    return named


def _paths(
    fields: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the path of every leaf field."""
    for name, inner in fields.items():
        if inner:
            yield from _paths(inner, (*above, name))
        elif name != ".":
            yield (*above, name)


def _dotted(path: tuple[str, ...]) -> str:
    return "".join(_step(step) for step in path).removeprefix(".")


def _step(step: str) -> str:
    kind, _, name = step.partition(":")
    if kind == "f":
        return f".{name}"
    key = json.loads(name)
    if isinstance(key, Mapping):
        key = ",".join(map(str, key.values()))
    return f"[{key}]"


def was_applied(item: Mapping[str, Any]) -> bool:
    """Return whether this project has applied a stored object.

    Needs `metadata.managedFields`.
    """
    return any(
        _is_our_apply(entry) for entry in item["metadata"].get("managedFields") or []
    )


def _is_our_apply(entry: Mapping[str, Any]) -> bool:
    return bool(
        entry.get("manager") == FIELD_MANAGER
        and entry.get("operation") == "Apply"
        and not entry.get("subresource")
    )


def _owned_fields(item: Mapping[str, Any]) -> Mapping[str, Any]:
    for entry in item["metadata"].get("managedFields") or []:
        if _is_our_apply(entry):
            found: Mapping[str, Any] = entry.get("fieldsV1") or {}
            return found
    return _NOTHING


def _project(value: Any, fields: Mapping[str, Any]) -> Any:
    """Return the part of a value that a field set names.

    An empty set names the whole value.
    """
    if not fields:
        return value
    if isinstance(value, Mapping):
        return {
            name: _project(value.get(name[2:]), inner)
            for name, inner in fields.items()
            if name.startswith("f:")
        }
    if isinstance(value, list):
        return {
            name: _project(_element(value, name), inner)
            for name, inner in fields.items()
            if name != "."
        }
    return value


def _owned(value: Any, fields: Mapping[str, Any]) -> Any:
    """Return the part of a value that a field set names, in its stored form.

    An empty set names the whole value.
    """
    if not fields:
        return value
    if isinstance(value, Mapping):
        kept = {
            name[2:]: inner for name, inner in fields.items() if name.startswith("f:")
        }
        return {
            name: _owned(value[name], inner)
            for name, inner in kept.items()
            if name in value
        }
    # In the order of the stored list, because a field set is ordered by its keys.
    chosen = [
        (_element(value, name), inner) for name, inner in fields.items() if name != "."
    ]
    ordered = sorted(
        (pair for pair in chosen if pair[0] is not None),
        key=lambda pair: value.index(pair[0]),
    )
    return [
        _owned(element, inner) if isinstance(element, Mapping) else element
        for element, inner in ordered
    ]


def _element(values: list[Any], name: str) -> Any:
    """Return the element of a path step: keys (`k:`), value (`v:`) or index (`i:`)."""
    step, wanted = name[:2], json.loads(name[2:])
    if step == "k:":
        matching = (
            value
            for value in values
            if isinstance(value, Mapping) and wanted.items() <= value.items()
        )
        return next(matching, None)
    if step == "v:":
        return wanted if wanted in values else None
    return values[wanted] if wanted < len(values) else None
