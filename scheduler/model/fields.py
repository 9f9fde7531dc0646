"""Typed reading of JSON that others wrote.

A report is read inside the one workflow that places all replicas: a value of the wrong type has to be a ValueError that names the field
when it is read, and no TypeError wherever it is used first. Absent and null are the same, and give the default of the type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Counts, times in ms and attributes are 64-bit numbers wherever they are stored.
WHOLE_MIN, WHOLE_MAX = -(1 << 63), (1 << 63) - 1
_SHOWN_MAX = 80


def is_whole(value: object) -> bool:
    """Whether a value is a whole number of 64 bits; True and False are none."""
    return type(value) is int and WHOLE_MIN <= value <= WHOLE_MAX


class FieldError(ValueError):
    """A field that cannot be read: `at` is where it is, as far as that is known yet."""

    def __init__(self, at: str, problem: str) -> None:
        super().__init__(f"{at}: {problem}" if at else problem)
        self.at = at
        self.problem = problem


def wrong(at: str, wanted: str, value: object) -> FieldError:
    """Give the error for a value of the wrong type; a long value is cut."""
    shown = repr(value)
    return FieldError(at, f"must be {wanted}, got {shown if len(shown) <= _SHOWN_MAX else shown[:_SHOWN_MAX] + '…'}")


def inside(name: str, error: ValueError) -> FieldError:
    """Give an error with the name of the field around it in front: `rollout.paused: must be true or false`."""
    if not isinstance(error, FieldError):
        return FieldError(name, str(error))
    return FieldError(f"{name}{'' if not error.at or error.at.startswith('[') else '.'}{error.at}", error.problem)


class Fields:
    """One JSON object and its place in a document, such as `InferenceCluster eu: status`. Every method raises FieldError, a ValueError."""

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
        return f"{self.at}{'.' if self.at and not self.at.endswith(': ') else ''}{key}"

    def text(self, key: str, default: str = "") -> str:
        """Give a text."""
        value = self.tree.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise wrong(self._at(key), "text", value)
        return value

    def name(self, key: str) -> str:
        """Give a text that may not be absent or empty."""
        value = self.text(key)
        if not value:
            raise FieldError(self._at(key), "is required")
        return value

    def whole(self, key: str, default: int = 0) -> int:
        """Give a whole number."""
        value = self.tree.get(key)
        if value is None:
            return default
        if not is_whole(value):
            raise wrong(self._at(key), "a whole number of 64 bits", value)
        number: int = value
        return number

    def flag(self, key: str) -> bool:
        """Give true or false."""
        value = self.tree.get(key)
        if value is not None and not isinstance(value, bool):
            raise wrong(self._at(key), "true or false", value)
        return bool(value)

    def object(self, key: str) -> Fields:
        """Give an object, an empty one if it is absent."""
        return Fields(self.tree.get(key), self._at(key))

    def objects(self, key: str) -> list[Fields]:
        """Give the objects of a list."""
        return [Fields({} if item is None else item, f"{self._at(key)}[{i}]") for i, item in enumerate(self._list(key))]

    def texts(self, key: str) -> tuple[str, ...]:
        """Give the texts of a list."""
        items = self._list(key)
        for i, item in enumerate(items):
            if not isinstance(item, str):
                raise wrong(f"{self._at(key)}[{i}]", "text", item)
        return tuple(items)

    def text_map(self, key: str) -> dict[str, str]:
        """Give an object of texts, such as labels."""
        found = self.object(key)
        return {name: found.text(name) for name in found.tree}

    def _list(self, key: str) -> list[Any]:
        value = self.tree.get(key)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            raise wrong(self._at(key), "a list", value)
        return list(value)
