"""The changes of a write: paths with old and new values, in bounded size.

Some values may contain secrets, so only their paths are recorded: arguments, commands
and environment variables of containers are free text, annotations may contain the whole
object (`kubectl apply` writes it there), and addresses may contain credentials or a
query. Field managers are recorded by name and operation, without the fields that they
own.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from front.audit.escaped import fitting

Json = dict[str, Any]

CHANGES_MAX = 64
VALUE_MAX = 256
"""The limit for a value as JSON, in characters.

Longer values are replaced by their length.
"""
HIDDEN_BELOW = frozenset({"annotations", "args", "command", "env"})
"""Fields whose values are hidden at any depth."""
_PRIVATE_ADDRESS = re.compile(r"://[^\s]*[@?]")
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_MISSING = object()
_FIELDS = (
    ("spec",),
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("metadata", "managedFields"),
)


@dataclass(frozen=True)
class FieldChange:
    """A changed field. If `hidden`, its values may not be shown."""

    path: str
    old: Any
    new: Any
    hidden: bool

    def shown(self) -> Json:
        """Return the log's form; a side without a value is left out."""
        shown = {"path": fitting(self.path)}
        if not self.hidden:
            for side, value in (("old", self.old), ("new", self.new)):
                if value is not _MISSING:
                    shown[side] = _bounded(value)
        return shown


def differences(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> tuple[list[Json], int]:
    """Compare spec, labels, annotations and field managers of two states.

    A state is None if the object does not exist. Returns the first differences in the
    log's form, and the number of further ones.
    """
    old, new = _with_managers(before or {}), _with_managers(after or {})
    found = chain.from_iterable(_field(old, new, names) for names in _FIELDS)
    first = [difference.shown() for difference in islice(found, CHANGES_MAX)]
    return first, sum(1 for _ in found)


def _with_managers(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace the owned fields of each manager by its operations."""
    metadata = _at(tree, ("metadata",))
    entries = metadata.get("managedFields") if isinstance(metadata, Mapping) else None
    if not entries:
        return tree
    ways: dict[str, list[str]] = {}
    for entry in entries:
        of = f" of {entry['subresource']}" if entry.get("subresource") else ""
        ways.setdefault(entry["manager"], []).append(entry["operation"] + of)
    managers = {
        manager: ", ".join(sorted(set(held))) for manager, held in sorted(ways.items())
    }
    return {**tree, "metadata": {**metadata, "managedFields": managers}}


def _field(
    before: Mapping[str, Any], after: Mapping[str, Any], names: tuple[str, ...]
) -> Iterator[FieldChange]:
    old, new = _at(before, names), _at(after, names)
    return _compared(".".join(names), old, new, hidden=names[-1] in HIDDEN_BELOW)


def _at(tree: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return _MISSING if tree is None else tree


def _compared(path: str, old: Any, new: Any, *, hidden: bool) -> Iterator[FieldChange]:
    sides = [side for side in (old, new) if side is not _MISSING]
    if any(sides) and all(isinstance(side, Mapping) for side in sides):
        for key in dict.fromkeys(chain.from_iterable(sides)):
            is_plain = _PLAIN.fullmatch(str(key))
            step = f".{key}" if is_plain else f"[{json.dumps(str(key))}]"
            is_hidden = hidden or key in HIDDEN_BELOW
            yield from _compared(
                path + step, _of(old, key), _of(new, key), hidden=is_hidden
            )
    elif any(sides) and all(isinstance(side, list) for side in sides):
        for index in range(max(map(len, sides))):
            yield from _compared(
                f"{path}[{index}]", _item(old, index), _item(new, index), hidden=hidden
            )
    elif old != new or type(old) is not type(new):
        yield FieldChange(
            path, old, new, hidden or _has_hidden(old) or _has_hidden(new)
        )


def _of(side: Any, key: str) -> Any:
    return _MISSING if side is _MISSING else side.get(key, _MISSING)


def _item(side: Any, index: int) -> Any:
    return _MISSING if side is _MISSING or index >= len(side) else side[index]


def _has_hidden(value: Any) -> bool:
    """Return whether a value contains hidden values."""
    if isinstance(value, Mapping):
        return any(
            key in HIDDEN_BELOW or _has_hidden(held) for key, held in value.items()
        )
    if isinstance(value, list):
        return any(map(_has_hidden, value))
    return isinstance(value, str) and _PRIVATE_ADDRESS.search(value) is not None


def _bounded(value: Any) -> Any:
    text = json.dumps(value)
    return value if len(text) <= VALUE_MAX else f"(a value of {len(text)} characters)"
