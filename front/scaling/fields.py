"""Parses the fields of a small JSON object, and reports all errors at once."""

import math
from collections.abc import Collection
from typing import Any

from api_types.hints import nearest
from api_types.payloads.limits import shortened
from api_types.text.printable import escaped
from api_types.validation.problems import InvalidManifest, Problem
from front.serving import errors
from front.store.projection import Tree

_SHOWN_BYTES_MAX = 64
_UNKNOWN_TOLD = 10
NUMBER_MAX = 1e12


class ObjectFields:
    """The fields of one object.

    Each method records errors and returns a usable value; `check` raises them.
    """

    def __init__(
        self, tree: Tree, group: str, kind: str, name: str, known: Collection[str]
    ) -> None:
        """Set the object, its name for errors, and the fields that it may have."""
        self._tree = tree
        self._of = (group, kind, name)
        self._problems: list[Problem] = []
        unknown = [field for field in tree if field not in known]
        for field in unknown[:_UNKNOWN_TOLD]:
            meant = nearest(str(field)[:_SHOWN_BYTES_MAX], known)
            suggestion = meant or " or ".join(known)
            self.problem(shown(field), f"unknown field; use {suggestion}")

    def problem(self, field: str, text: str) -> None:
        self._problems.append(Problem(self._of[1], field, text))

    def text(self, field: str, *, bytes_max: int, required: bool = False) -> str:
        """Return a string field; empty if it is missing."""
        value = self._tree.get(field)
        if value is None or value == "":
            if required:
                self.problem(field, "required field is missing; set it to a string")
            return ""
        if not isinstance(value, str):
            self.problem(field, f"must be a string, got {shown(value)}")
            return ""
        if len(value.encode()) > bytes_max:
            self.problem(
                field,
                f"must have at most {bytes_max} bytes, got {len(value.encode())}",
            )
            return ""
        return value

    def number(self, field: str) -> float | None:
        """Return a non-negative number field; None if it is missing."""
        value = self._tree.get(field)
        if value is None:
            return None
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not (math.isfinite(value) and 0 <= value <= NUMBER_MAX)
        ):
            self.problem(
                field,
                f"must be a number between 0 and {NUMBER_MAX:.0f}, got {shown(value)}",
            )
            return None
        return float(value)

    def check(self) -> None:
        """Raise `RejectedRequest` with all errors, if there are any."""
        if self._problems:
            raise errors.invalid(*self._of, InvalidManifest(self._problems))


def shown(value: Any) -> str:
    """Return a client's value as text for an error message."""
    return shortened(escaped(repr(value)[: 4 * _SHOWN_BYTES_MAX]), _SHOWN_BYTES_MAX)
