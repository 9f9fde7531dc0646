"""Errors in a document, and their format: `<Kind> <namespace>/<name>: <field path>: <problem>`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

Loc = tuple[str | int, ...]
"""Where a value is: field names as written, and indices of lists."""


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
        return ": ".join(part for part in (self.object, self.field, self.problem) if part)


class InvalidManifest(ValueError):
    """Everything that is wrong with the input, at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    @classmethod
    def of(cls, title: str, field: str, problem: str) -> Self:
        """Make the error of a single problem."""
        return cls([Problem(title, field, problem)])

    def __reduce__(self) -> tuple[type["InvalidManifest"], tuple[tuple[Problem, ...]]]:
        """Survive a copy with the problems themselves."""
        return type(self), (self.problems,)
