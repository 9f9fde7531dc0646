"""The failures of a selector: rejected before use, or not evaluated for a device."""

from __future__ import annotations


class SelectorError(ValueError):
    """A selector that the workload cluster or this scheduler rejects.

    Attributes:
        problem: the reason, without the position.
        line: 1-based line, or 0 for the whole text.
        column: 1-based column in characters, or 0.

    """

    def __init__(self, problem: str, *, line: int = 0, column: int = 0) -> None:
        self.problem = problem
        self.line = line
        self.column = column
        place = f"line {line}, column {column}: " if line else ""
        super().__init__(f"{place}{problem}")


class EvalError(Exception):
    """An error value of CEL, which `||` and `&&` may absorb."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Aborted(Exception):
    """The evaluation was stopped.

    Unlike an error value, this cannot be absorbed.

    Attributes:
        work: cost units and steps until then.

    """

    def __init__(self, reason: str, work: int = 0) -> None:
        super().__init__(reason)
        self.work = work
