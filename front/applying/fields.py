"""Sets of fields: what a manager owns, in the notation of `managedFields`.

A path has one element per level, in the notation of FieldsV1: `f:NAME` for a field of a
map, `k:{"name":"a"}` for the list item with these keys. So a set of fields is a set of
tuples of strings, and Python's set operations apply.
"""

import json
from collections.abc import Iterable
from typing import Any

from api_types.text.reader import DEPTH_MAX, is_unicode

Path = tuple[str, ...]
FieldSet = frozenset[Path]
Json = dict[str, Any]

FIELD, ITEM = "f:", "k:"
_ITSELF = "."
_OTHER_ITEMS = ("v:", "i:")


def of_field(name: str) -> str:
    """Return the element for a field of a map."""
    return FIELD + name


def of_item(keys: Json) -> str:
    """Return the element for a list item.

    Raises ValueError for keys that JSON cannot represent, such as infinity.
    """
    return ITEM + json.dumps(
        keys, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def to_tree(fields: Iterable[Path]) -> Json:
    """Encode a set as FieldsV1.

    `{}` is an owned field. `.` in a tree means that the parent of the tree is owned
    itself.
    """
    tree: Json = {}
    for path in sorted(set(fields)):
        node, is_new = tree, True
        for element in path:
            if not (node or is_new):
                # Paths are sorted, so an earlier path ends here.
                node[_ITSELF] = {}
            is_new = element not in node
            node = node.setdefault(element, {})
    return tree


def is_owned(node: Json) -> bool:
    """Return whether a node is an owned field, and not only the parent of one."""
    return not node or _ITSELF in node


def from_tree(tree: Any) -> FieldSet:
    """Decode a set. Raises ValueError for anything but FieldsV1."""
    found: set[Path] = set()
    level: list[tuple[Path, Any]] = [((), tree)]
    while level:
        path, node = level.pop()
        if not isinstance(node, dict) or len(path) > DEPTH_MAX:
            raise ValueError(
                f"FieldsV1 must consist of objects, in at most {DEPTH_MAX} levels"
            )
        if path and is_owned(node):
            found.add(path)
        level += [
            ((*path, _canonical(key)), below)
            for key, below in node.items()
            if key != _ITSELF
        ]
    return frozenset(found)


def _canonical(element: str) -> str:
    if element.startswith(ITEM):
        keys = json.loads(element.removeprefix(ITEM))
        named = of_item(keys) if isinstance(keys, dict) else None
        # The keys may contain an escape for half of a surrogate pair.
        if named is None or not is_unicode(named):
            raise ValueError(f"{element[:64]!r} has no valid keys")
        return named
    if not element.startswith((FIELD, *_OTHER_ITEMS)) or not is_unicode(element):
        raise ValueError(f"{element[:64]!r} is not an element of a path")
    return element


def text_of(path: Path) -> str:
    """Return a path as Kubernetes writes it: `.spec.engines[name="main"].copies`."""
    return "".join(_text(element) for element in path)


def _text(element: str) -> str:
    if element.startswith(ITEM):
        keys = json.loads(element.removeprefix(ITEM))
        pairs = [f"{key}={json.dumps(keys[key], ensure_ascii=False)}" for key in keys]
        return f"[{','.join(pairs)}]"
    return f".{element.removeprefix(FIELD)}"
