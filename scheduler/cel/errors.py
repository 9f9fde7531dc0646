"""The two ways a selector fails: it is refused before use, or it cannot be evaluated for one device."""

from __future__ import annotations


class SelectorError(ValueError):
    """A selector that must not be used: the workload cluster, or this scheduler's own limits, would refuse it.

    Attributes:
        problem: what is wrong, without the place.
        line: 1-based line, or 0 when the whole text is meant.
        column: 1-based column in characters, or 0.

    """

    def __init__(self, problem: str, *, line: int = 0, column: int = 0) -> None:
        self.problem = problem
        self.line = line
        self.column = column
        place = f"line {line}, column {column}: " if line else ""
        super().__init__(f"{place}{problem}")


class EvalError(Exception):
    """What CEL calls an error value: it travels through an evaluation and may be absorbed by `||` and `&&`."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Aborted(Exception):
    """Evaluation was stopped; unlike an error value nothing absorbs it.

    Attributes:
        work: cost units and steps until then.

    """

    def __init__(self, reason: str, work: int = 0) -> None:
        super().__init__(reason)
        self.work = work
