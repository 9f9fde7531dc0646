"""Typed access to JSON that other programs wrote.

The scheduler workflow places all replicas, and it reads reports itself. A value of the
wrong type must raise a ValueError that names the field when it is read, not a TypeError
when it is first used. An absent field and null are equivalent, and yield the default of
the type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Counts, times in ms and attributes are stored as 64-bit numbers everywhere.
WHOLE_MIN, WHOLE_MAX = -(1 << 63), (1 << 63) - 1
_SHOWN_MAX = 80


def is_whole(value: object) -> bool:
    """Return whether a value is a 64-bit integer; booleans are not integers here."""
    return type(value) is int and WHOLE_MIN <= value <= WHOLE_MAX


class FieldError(ValueError):
    """A field that cannot be read; `at` is its path, as far as it is known."""

    def __init__(self, at: str, problem: str) -> None:
        super().__init__(f"{at}: {problem}" if at else problem)
        self.at = at
        self.problem = problem


def wrong(at: str, wanted: str, value: object) -> FieldError:
    """Return the error for a value of the wrong type; long values are cut."""
    shown = repr(value)
    if len(shown) > _SHOWN_MAX:
        shown = f"{shown[:_SHOWN_MAX]}…"
    return FieldError(at, f"must be {wanted}, got {shown}")


def inside(name: str, error: ValueError) -> FieldError:
    """Return the error with a field name prepended to its path.

    Example: `rollout.paused: must be true or false`.
    """
    if not isinstance(error, FieldError):
        return FieldError(name, str(error))
    separator = "" if not error.at or error.at.startswith("[") else "."
    return FieldError(f"{name}{separator}{error.at}", error.problem)


class JsonFields:
    """A JSON object and its place in a document, such as `InferenceCluster eu: status`.

    Every method raises FieldError, which is a ValueError.
    """

    __slots__ = ("at", "tree")

    def __init__(self, tree: object, at: str) -> None:
        if tree is None:
            tree = {}
        if not isinstance(tree, Mapping):
            raise wrong(at, "an object", tree)
        self.tree: Mapping[str, Any] = tree
        self.at = at

    def __contains__(self, key: str) -> bool:
        return self.tree.get(key) is not None

    def _at(self, key: str) -> str:
        separator = "." if self.at and not self.at.endswith(": ") else ""
        return f"{self.at}{separator}{key}"

    def text(self, key: str, default: str = "") -> str:
        value = self.tree.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise wrong(self._at(key), "text", value)
        return value

    def name(self, key: str) -> str:
        """Return a text; raise FieldError if it is absent or empty."""
        value = self.text(key)
        if not value:
            raise FieldError(self._at(key), "is required")
        return value

    def whole(self, key: str, default: int = 0) -> int:
        value = self.tree.get(key)
        if value is None:
            return default
        if not is_whole(value):
            raise wrong(self._at(key), "a whole number of 64 bits", value)
        number: int = value
        return number

    def flag(self, key: str) -> bool:
        value = self.tree.get(key)
        if value is not None and not isinstance(value, bool):
            raise wrong(self._at(key), "true or false", value)
        return bool(value)

    def object(self, key: str) -> JsonFields:
        """Return an object, or an empty one if the field is absent."""
        return JsonFields(self.tree.get(key), self._at(key))

    def objects(self, key: str) -> list[JsonFields]:
        return [
            JsonFields({} if item is None else item, f"{self._at(key)}[{i}]")
            for i, item in enumerate(self._list(key))
        ]

    def texts(self, key: str) -> tuple[str, ...]:
        items = self._list(key)
        for i, item in enumerate(items):
            if not isinstance(item, str):
                raise wrong(f"{self._at(key)}[{i}]", "text", item)
        return tuple(items)

    def text_map(self, key: str) -> dict[str, str]:
        """Return an object of texts, such as labels."""
        found = self.object(key)
        return {name: found.text(name) for name in found.tree}

    def _list(self, key: str) -> list[Any]:
        value = self.tree.get(key)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            raise wrong(self._at(key), "a list", value)
        return list(value)
