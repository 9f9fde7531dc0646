"""Read values of camelCase specs without trusting them.

A spec may have been stored before a check existed. Each reader reports a bad value with
its object, its field and a remedy. It then returns a value of the right type, so that
reading continues and finds the next problem.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from activities.render.inputs.findings import Findings


class Reader:
    """Reads the fields of one mapping; `where` names the mapping in every message."""

    def __init__(self, value: Any, where: str, findings: Findings) -> None:
        self.where = where
        self.findings = findings
        if not isinstance(value, Mapping):
            findings.problem(where, f"must be an object, is {value!r}")
            value = {}
        self.fields: Mapping[str, Any] = value

    def text(self, name: str, default: str = "", *, required: bool = False) -> str:
        """Return a string, and report a missing or empty one that is required."""
        value = self.fields.get(name)
        if value is None:
            value = default
        if not isinstance(value, str):
            self.findings.problem(self.where, f"{name} must be a string, is {value!r}")
            return default
        if required and not value:
            self.findings.problem(self.where, f"{name} is missing")
        return value

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number within the bounds. JSON may contain it as 2.0."""
        value = self.fields.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not (
            isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        ):
            self.findings.problem(
                self.where, f"{name} must be a whole number, is {value!r}"
            )
            return default
        if not low <= value <= high:
            self.findings.problem(
                self.where, f"{name} must be between {low} and {high}, is {int(value)}"
            )
        return int(value)

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        value = self.fields.get(name)
        if value is None:
            return default
        if value not in choices:
            self.findings.problem(
                self.where, f"{name} must be one of {', '.join(choices)}, is {value!r}"
            )
            return default
        return str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings, byte for byte."""
        values = self.sequence(name)
        for value in values:
            if not isinstance(value, str):
                self.findings.problem(
                    self.where, f"{name} must contain only strings, contains {value!r}"
                )
        return tuple(value for value in values if isinstance(value, str))

    def sequence(self, name: str) -> tuple[Any, ...]:
        """Return a list. An absent one is empty."""
        value = self.fields.get(name)
        if value is None:
            return ()
        if isinstance(value, str) or not isinstance(value, Sequence):
            self.findings.problem(self.where, f"{name} must be a list, is {value!r}")
            return ()
        return tuple(value)

    def object(self, name: str) -> "Reader":
        """Return a reader of a nested object. An absent one is empty."""
        value = self.fields.get(name)
        return Reader(
            {} if value is None else value,
            f"{self.where}, {name}" if self.where else name,
            self.findings,
        )

    def has(self, name: str) -> bool:
        """Return whether the field has a value other than null."""
        return self.fields.get(name) is not None


def check_encodable(value: Any, where: str, findings: Findings) -> None:
    """Report every string of a tree that contains a lone surrogate.

    JSON may contain it, but it can be neither hashed nor sent to an API server.
    """
    if isinstance(value, Mapping):
        for name, inner in value.items():
            check_encodable(name, where, findings)
            check_encodable(inner, f"{where}.{name}", findings)
    elif isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            findings.problem(
                where.encode(errors="replace").decode(),
                f"{value!r} is not valid Unicode",
            )
    elif isinstance(value, Sequence):
        for position, inner in enumerate(value):
            check_encodable(inner, f"{where}[{position}]", findings)
