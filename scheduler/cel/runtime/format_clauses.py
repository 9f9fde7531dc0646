"""The clauses of a format text, such as `%d` and `%.3f`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

LETTERS = frozenset("sdfebxXo")
# Kubernetes accepts any precision and writes that many digits.
PRECISION_MAX = 100
_PRECISION_DIGITS_MAX = 10


class FormatError(ValueError):
    """A format text that cannot be read, or an argument that does not fit its clause."""


class Clause(NamedTuple):
    """`%d`, `%.3f` and the like, or the plain text between two of them.

    Attributes:
        letter: the kind of the clause, or empty for plain text.
        precision: digits behind the point, or None if the clause has no precision.
        text: the plain text.

    """

    letter: str
    precision: int | None = None
    text: str = ""


def clauses(text: str) -> Iterator[Clause]:
    """Split a format text.

    Raises:
        FormatError: a clause is cut off or unknown.

    """
    at = 0
    while at < len(text):
        percent = text.find("%", at)
        if percent < 0:
            yield Clause("", text=text[at:])
            return
        if percent > at:
            yield Clause("", text=text[at:percent])
        if text[percent + 1 : percent + 2] == "%":
            yield Clause("", text="%")
            at = percent + 2
            continue
        clause, at = _clause(text, percent + 1)
        yield clause


def _clause(text: str, at: int) -> tuple[Clause, int]:
    precision = None
    if text[at : at + 1] == ".":
        end = at + 1
        while end < len(text) and text[end] in "0123456789":
            end += 1
        digits = text[at + 1 : end]
        if not digits or end == len(text):
            raise FormatError("the precision of a format clause is cut off")
        if len(digits) > _PRECISION_DIGITS_MAX or int(digits) > PRECISION_MAX:
            raise FormatError(f"a precision above {PRECISION_MAX} is not supported")
        precision, at = int(digits), end
    letter = text[at : at + 1]
    if letter not in LETTERS:
        raise FormatError(f"unknown format clause %{letter}")
    return Clause(letter, precision), at + 1
