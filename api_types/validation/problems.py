"""Errors in a document: `<Kind> <namespace>/<name>: <field path>: <problem>`.

Names, fields and values in errors come from any client, and are shown in terminals and
stored in conditions. So each error is one line of bounded length, and the number of
shown errors is bounded.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from api_types.payloads.limits import shortened
from api_types.text.printable import escaped

Loc = tuple[str | int, ...]
"""A location: field names as written, and indices of lists."""

_PART_BYTES_MAX = {"object": 512, "field": 512, "problem": 2048}
_LINES_MAX = 100
_BYTES_MAX = 32 * 1024
_CHARACTERS_MAX = max(_PART_BYTES_MAX.values())


@dataclass(frozen=True)
class Problem:
    """One problem with one field of an object."""

    object: str
    """`<Kind> <namespace>/<name>`, or file and line of an unreadable text."""
    field: str
    """Path of the field as the user wrote it; empty for the whole document."""
    problem: str
    """The problem and the next step."""

    def __str__(self) -> str:
        """Return the line for users."""
        parts = (
            shortened(escaped(getattr(self, name)[: _CHARACTERS_MAX + 1]), bytes_max)
            for name, bytes_max in _PART_BYTES_MAX.items()
        )
        return ": ".join(filter(None, parts))


def lines_of(problems: Sequence[Problem]) -> list[str]:
    """Return the lines of the first problems, and the number of further ones."""
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
    """All problems with the input."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """Return the lines for users: the first errors, and the number of further ones."""
        return lines_of(self.problems)

    @classmethod
    def of(cls, title: str, field: str, problem: str) -> Self:
        """Create the error of a single problem."""
        return cls([Problem(title, field, problem)])

    def __reduce__(self) -> tuple[type["InvalidManifest"], tuple[tuple[Problem, ...]]]:
        """Keep the problems in copies and pickles."""
        return type(self), (self.problems,)
