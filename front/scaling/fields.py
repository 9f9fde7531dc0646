"""Reading the fields of a small JSON object, with everything that is wrong with it at once."""

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


class Fields:
    """The fields of one object. Each reader notes what is wrong and gives a value that is good to go on with; `check` raises."""

    def __init__(self, tree: Tree, group: str, kind: str, name: str, known: Collection[str]) -> None:
        """`group`, `kind` and `name` say in the refusal what the object is of; a field that is not `known` is refused."""
        self._tree, self._of = tree, (group, kind, name)
        self._problems: list[Problem] = []
        for field in [field for field in tree if field not in known][:_UNKNOWN_TOLD]:
            meant = nearest(str(field)[:_SHOWN_BYTES_MAX], known)
            self.problem(shown(field), f"unknown field; write {meant or ' or '.join(known)}")

    def problem(self, field: str, text: str) -> None:
        """Note a problem of a field."""
        self._problems.append(Problem(self._of[1], field, text))

    def text(self, field: str, *, bytes_max: int, required: bool = False) -> str:
        """Read a text; empty if it is absent."""
        value = self._tree.get(field)
        if value is None or value == "":
            if required:
                self.problem(field, "required field is missing; write a text")
            return ""
        if not isinstance(value, str):
            self.problem(field, f"must be a text, got {shown(value)}")
            return ""
        if len(value.encode()) > bytes_max:
            self.problem(field, f"must have at most {bytes_max} bytes, got {len(value.encode())}; shorten it")
            return ""
        return value

    def number(self, field: str) -> float | None:
        """Read a number that is not negative; None if it is absent."""
        value = self._tree.get(field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and 0 <= value <= NUMBER_MAX):
            self.problem(field, f"must be a number between 0 and {NUMBER_MAX:.0f}, got {shown(value)}")
            return None
        return float(value)

    def check(self) -> None:
        """Raise `Refused` with all problems, if there are any."""
        if self._problems:
            raise errors.invalid(*self._of, InvalidManifest(self._problems))


def shown(value: Any) -> str:
    """Show a value of a client in a sentence."""
    return shortened(escaped(repr(value)[: 4 * _SHOWN_BYTES_MAX]), _SHOWN_BYTES_MAX)
