"""Take values out of wire-form specs without trusting them.

A spec may have been stored before a check existed. Each reader notes a bad value with object, field and what to do, and then gives a value
of the right type, so that reading goes on to the next problem.
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
        """Give a text; a missing or empty required one is a problem."""
        value = self.fields.get(name)
        if value is None:
            value = default
        if not isinstance(value, str):
            self.findings.problem(self.where, f"{name} must be a text, is {value!r}")
            return default
        if required and not value:
            self.findings.problem(self.where, f"{name} is missing")
        return value

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """Give a whole number within the bounds; JSON may have it as 2.0."""
        value = self.fields.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
            self.findings.problem(self.where, f"{name} must be a whole number, is {value!r}")
            return default
        if not low <= value <= high:
            self.findings.problem(self.where, f"{name} must be between {low} and {high}, is {int(value)}")
        return int(value)

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        """Give one of the choices."""
        value = self.fields.get(name)
        if value is None:
            return default
        if value not in choices:
            self.findings.problem(self.where, f"{name} must be one of {', '.join(choices)}, is {value!r}")
            return default
        return str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """Give a list of texts, byte for byte."""
        values = self.sequence(name)
        for value in values:
            if not isinstance(value, str):
                self.findings.problem(self.where, f"{name} must hold texts only, holds {value!r}")
        return tuple(value for value in values if isinstance(value, str))

    def sequence(self, name: str) -> tuple[Any, ...]:
        """Give a list; absent counts as empty."""
        value = self.fields.get(name)
        if value is None:
            return ()
        if isinstance(value, str) or not isinstance(value, Sequence):
            self.findings.problem(self.where, f"{name} must be a list, is {value!r}")
            return ()
        return tuple(value)

    def object(self, name: str) -> "Reader":
        """Read a nested object; absent counts as empty."""
        value = self.fields.get(name)
        return Reader({} if value is None else value, f"{self.where}, {name}" if self.where else name, self.findings)

    def has(self, name: str) -> bool:
        """Tell whether the field was set to anything at all."""
        return self.fields.get(name) is not None


def check_encodable(value: Any, where: str, findings: Findings) -> None:
    """Report every text of a tree with a lone surrogate: JSON may contain it, but it can be neither hashed nor sent to an API server."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            check_encodable(name, where, findings)
            check_encodable(inner, f"{where}.{name}", findings)
    elif isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            findings.problem(where.encode(errors="replace").decode(), f"{value!r} is not valid Unicode")
    elif isinstance(value, Sequence):
        for position, inner in enumerate(value):
            check_encodable(inner, f"{where}[{position}]", findings)
