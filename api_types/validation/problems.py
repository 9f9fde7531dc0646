"""Errors in a document, and their format: `<Kind> <namespace>/<name>: <field path>: <problem>`.

Names, fields and values in them come from anybody, and they are shown in terminals and kept in conditions. So each error is one line of
bounded length, and there is a bound on how many are shown.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from api_types.payload_limits import shortened

Loc = tuple[str | int, ...]
"""Where a value is: field names as written, and indices of lists."""

_PART_BYTES_MAX = {"object": 512, "field": 512, "problem": 2048}
_LINES_MAX = 100
# Controls (C0, DEL, C1), what changes the direction of text or ends a line unseen, and halves of surrogate pairs.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_CHARACTERS_MAX = max(_PART_BYTES_MAX.values())


def escaped(text: str, keep: str = "") -> str:
    """Show characters that a terminal would obey, or not show, as escapes; those in `keep` stay."""
    return _CONTROL.sub(lambda found: found[0] if found[0] in keep else _escape(ord(found[0])), text)


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code.bit_length() > 8 else f"\\x{code:02x}"  # noqa: PLR2004 - two digits are eight bits


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


class InvalidManifest(ValueError):
    """Everything that is wrong with the input, at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """Give the lines that users see: the first errors, and how many more there are."""
        more = len(self.problems) - _LINES_MAX
        shown = [str(problem) for problem in self.problems[:_LINES_MAX]]
        return [*shown, f"and {more} more"] if more > 0 else shown

    @classmethod
    def of(cls, title: str, field: str, problem: str) -> Self:
        """Make the error of a single problem."""
        return cls([Problem(title, field, problem)])

    def __reduce__(self) -> tuple[type["InvalidManifest"], tuple[tuple[Problem, ...]]]:
        """Survive a copy with the problems themselves."""
        return type(self), (self.problems,)
