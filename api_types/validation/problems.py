"""Errors in a document, and their format: `<Kind> <namespace>/<name>: <field path>: <problem>`.

Names, fields and values in them come from any client, and they are shown in terminals and kept in conditions. So each error is one line of
bounded length, and there is a bound on how many are shown.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from api_types.payloads.limits import shortened
from api_types.text.printable import escaped

Loc = tuple[str | int, ...]
"""Where a value is: field names as written, and indices of lists."""

_PART_BYTES_MAX = {"object": 512, "field": 512, "problem": 2048}
_LINES_MAX = 100
_BYTES_MAX = 32 * 1024
_CHARACTERS_MAX = max(_PART_BYTES_MAX.values())


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with one field of one object."""

    object: str
    """`<Kind> <namespace>/<name>`, or the file and line of a text that could not be read."""
    field: str
    """Path of the field as the user wrote it; empty for the document as a whole."""
    problem: str
    """What is wrong and what to do."""

    def __str__(self) -> str:
        """Give the line that users see."""
        parts = (shortened(escaped(getattr(self, name)[: _CHARACTERS_MAX + 1]), bytes_max) for name, bytes_max in _PART_BYTES_MAX.items())
        return ": ".join(filter(None, parts))


def lines_of(problems: Sequence[Problem]) -> list[str]:
    """Give the lines of the first ones, and how many more there are."""
    shown: list[str] = []
    left = _BYTES_MAX
    for problem in problems[:_LINES_MAX]:
        line = str(problem)
        left -= len(line.encode())
        if left < 0:
            break
        shown.append(line)
    more = len(problems) - len(shown)
    return [*shown, f"and {more} more"] if more else shown


class InvalidManifest(ValueError):
    """Everything that is wrong with the input, at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """Give the lines that users see: the first errors, and how many more there are."""
        return lines_of(self.problems)

    @classmethod
    def of(cls, title: str, field: str, problem: str) -> Self:
        """Make the error of a single problem."""
        return cls([Problem(title, field, problem)])

    def __reduce__(self) -> tuple[type["InvalidManifest"], tuple[tuple[Problem, ...]]]:
        """Survive a copy with the problems themselves."""
        return type(self), (self.problems,)
