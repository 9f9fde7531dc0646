"""What a write changed of an object: paths with the old and the new value, in bounded size.

Arguments, commands and environment variables of containers are free text that may have a token in it, and an annotation may have the whole
object in it, as that of `kubectl apply` has. Of those the path alone is given, and so of addresses with credentials or a query.
Of the managers of fields it is told who they are and how they write, and not which fields they own.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from front.audit.escaped import fitting

Json = dict[str, Any]

CHANGES_MAX = 64
VALUE_MAX = 256
"""Characters of a value in JSON; of a longer one its length is given."""
HIDDEN_BELOW = frozenset({"annotations", "args", "command", "env"})
"""Fields of which no value is shown, at whatever depth they are."""
_PRIVATE_ADDRESS = re.compile(r"://[^\s]*[@?]")
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_MISSING = object()
_FIELDS = (("spec",), ("metadata", "labels"), ("metadata", "annotations"), ("metadata", "managedFields"))


@dataclass(frozen=True)
class Difference:
    """A changed field. `old` and `new` are as in the object; `hidden`: neither may be shown."""

    path: str
    old: Any
    new: Any
    hidden: bool

    def shown(self) -> Json:
        """Write it for the log; a side that has no value is left out."""
        sides = {} if self.hidden else {"old": self.old, "new": self.new}
        return {"path": fitting(self.path)} | {side: _bounded(value) for side, value in sides.items() if value is not _MISSING}


def differences(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> tuple[list[Json], int]:
    """Compare spec, labels, annotations and field managers of two states of an object; None for one that is not there.

    Gives the first differences as the log has them, and how many more there are.
    """
    old, new = _with_managers(before or {}), _with_managers(after or {})
    found = (difference for names in _FIELDS for difference in _field(old, new, names))
    first = [difference.shown() for difference in islice(found, CHANGES_MAX)]
    return first, sum(1 for _ in found)


def _with_managers(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give an object with the names of its managers, each with how it writes, in the place of the fields that they own."""
    metadata = _at(tree, ("metadata",))
    entries = metadata.get("managedFields") if isinstance(metadata, Mapping) else None
    if not entries:
        return tree
    ways: dict[str, list[str]] = {}
    for entry in entries:
        of = f" of {entry['subresource']}" if entry.get("subresource") else ""
        ways.setdefault(entry["manager"], []).append(entry["operation"] + of)
    managers = {manager: ", ".join(sorted(set(held))) for manager, held in sorted(ways.items())}
    return {**tree, "metadata": {**metadata, "managedFields": managers}}


def _field(before: Mapping[str, Any], after: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[Difference]:
    old, new = _at(before, names), _at(after, names)
    return _compared(".".join(names), old, new, hidden=names[-1] in HIDDEN_BELOW)


def _at(tree: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return _MISSING if tree is None else tree


def _compared(path: str, old: Any, new: Any, *, hidden: bool) -> Iterator[Difference]:
    sides = [side for side in (old, new) if side is not _MISSING]
    if any(sides) and all(isinstance(side, Mapping) for side in sides):
        for key in dict.fromkeys(key for side in sides for key in side):
            below = f"{path}.{key}" if _PLAIN.fullmatch(str(key)) else f"{path}[{json.dumps(str(key))}]"
            yield from _compared(below, _of(old, key), _of(new, key), hidden=hidden or key in HIDDEN_BELOW)
    elif any(sides) and all(isinstance(side, list) for side in sides):
        for index in range(max(map(len, sides))):
            yield from _compared(f"{path}[{index}]", _item(old, index), _item(new, index), hidden=hidden)
    elif old != new or type(old) is not type(new):
        yield Difference(path, old, new, hidden or _has_hidden(old) or _has_hidden(new))


def _of(side: Any, key: str) -> Any:
    return _MISSING if side is _MISSING else side.get(key, _MISSING)


def _item(side: Any, index: int) -> Any:
    return _MISSING if side is _MISSING or index >= len(side) else side[index]


def _has_hidden(value: Any) -> bool:
    """Whether a value that is shown as a whole has something in it that is not shown."""
    if isinstance(value, Mapping):
        return any(key in HIDDEN_BELOW or _has_hidden(held) for key, held in value.items())
    if isinstance(value, list):
        return any(map(_has_hidden, value))
    return isinstance(value, str) and _PRIVATE_ADDRESS.search(value) is not None


def _bounded(value: Any) -> Any:
    text = json.dumps(value)
    return value if len(text) <= VALUE_MAX else f"(a value of {len(text)} characters)"
