"""Sets of fields: what a manager owns, and how `managedFields` writes it.

A path has one element per level, each written as FieldsV1 writes it: `f:NAME` for a field of a map, `k:{"name":"a"}` for the item of a list
that has these keys. So a set of fields is a set of tuples of texts, and the algebra of sets is that of Python.
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
    """Name a field of a map."""
    return FIELD + name


def of_item(keys: Json) -> str:
    """Name the item of a list by its keys. Raises ValueError for what no JSON has, such as infinity."""
    return ITEM + json.dumps(keys, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def to_tree(fields: Iterable[Path]) -> Json:
    """Write a set as FieldsV1 does: `{}` is a field that is owned, and `.` in a tree says that what the tree is below is owned itself."""
    tree: Json = {}
    for path in sorted(set(fields)):
        node, is_new = tree, True
        for element in path:
            if not (node or is_new):
                # In this order it is the end of a path before.
                node[_ITSELF] = {}
            is_new = element not in node
            node = node.setdefault(element, {})
    return tree


def is_owned(node: Json) -> bool:
    """Whether a node of such a tree stands for a field of the set, and not only for what is above one."""
    return not node or _ITSELF in node


def from_tree(tree: Any) -> FieldSet:
    """Read a set. Raises ValueError for what is no FieldsV1."""
    found: set[Path] = set()
    level: list[tuple[Path, Any]] = [((), tree)]
    while level:
        path, node = level.pop()
        if not isinstance(node, dict) or len(path) > DEPTH_MAX:
            raise ValueError(f"FieldsV1 must consist of objects, in at most {DEPTH_MAX} levels")
        if path and is_owned(node):
            found.add(path)
        level += [((*path, _canonical(key)), below) for key, below in node.items() if key != _ITSELF]
    return frozenset(found)


def _canonical(element: str) -> str:
    if element.startswith(ITEM):
        keys = json.loads(element.removeprefix(ITEM))
        if not isinstance(keys, dict) or not is_unicode(named := of_item(keys)):
            # An escape in the keys may be half of a surrogate pair, which the element itself does not show.
            raise ValueError(f"{element[:64]!r} has no keys")
        return named
    if not element.startswith((FIELD, *_OTHER_ITEMS)) or not is_unicode(element):
        raise ValueError(f"{element[:64]!r} is no element of a path")
    return element


def text_of(path: Path) -> str:
    """Write a path as messages of Kubernetes do: `.spec.engines[name="main"].copies`."""
    return "".join(_text(element) for element in path)


def _text(element: str) -> str:
    if element.startswith(ITEM):
        pairs = json.loads(element.removeprefix(ITEM))
        return "[" + ",".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in pairs.items()) + "]"
    return f".{element.removeprefix(FIELD)}"
