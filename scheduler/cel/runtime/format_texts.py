"""`text.format(list)`, with the same results as cel-go."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime.conversions import to_string
from scheduler.cel.runtime.format_clauses import Clause, FormatError, clauses
from scheduler.cel.runtime.go_text import cel_quoted, quoted
from scheduler.cel.runtime.values import (
    Duration,
    MapValue,
    Timestamp,
    TypeValue,
    Uint,
    no_overload,
    type_name,
)

_PRECISION = 6
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_EXPONENT_DIGITS = 2
_DOUBLE_TEXTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INTEGERS = (int, Uint)
_PLAIN = (int, Uint, float, bool, str, bytes, Timestamp, Duration, TypeValue)


def _format(text: Any, arguments: Any) -> Any:
    if type(text) is not str or type(arguments) is not list:
        return no_overload(text, arguments)
    made: list[str] = []
    used = 0
    try:
        for clause in clauses(text):
            if not clause.letter:
                made.append(clause.text)
                continue
            if used >= len(arguments):
                raise FormatError(f"index {used} out of range")  # noqa: TRY301 - read below
            made.append(_WRITERS[clause.letter](arguments[used], clause))
            used += 1
    except FormatError as error:
        return EvalError(str(error))
    return "".join(made)


def _misfit(value: Any, clause: Clause) -> FormatError:
    return FormatError(f"%{clause.letter} does not take a {type_name(value)}")


def _string(value: Any, clause: Clause) -> str:
    if type(value) is list:
        return _list(value)
    if type(value) is MapValue:
        return _map(value)
    if value is None:
        return "null"
    if type(value) not in _PLAIN:
        raise _misfit(value, clause)
    return _plain(value)


def _plain(value: Any) -> str:
    if type(value) is TypeValue:
        return value.name
    text = to_string(value)
    if isinstance(text, EvalError):
        raise FormatError(text.reason)
    return str(text)


def _decimal(value: Any, clause: Clause) -> str:
    if type(value) not in _INTEGERS:
        raise _misfit(value, clause)
    return str(int(value))


def _double(value: Any, clause: Clause) -> float:
    if type(value) is float:
        return value
    if type(value) is str and value in _DOUBLE_TEXTS:
        return _DOUBLE_TEXTS[value]
    raise _misfit(value, clause)


def _special(number: float) -> str:
    """Return the text of a number that has no digits, or an empty text."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    return ""


def _digits(clause: Clause) -> int:
    return _PRECISION if clause.precision is None else clause.precision


def _fixed(value: Any, clause: Clause) -> str:
    number = _double(value, clause)
    sign = "-" if number < 0 else ""
    return _special(number) or f"{sign}{abs(number):,.{_digits(clause)}f}"


def _scientific(value: Any, clause: Clause) -> str:
    number = _double(value, clause)
    special = _special(number)
    if special:
        return special
    sign = "-" if number < 0 else ""
    mantissa, _, exponent = f"{abs(number):.{_digits(clause)}e}".partition("e")
    digits = exponent.lstrip("+-").zfill(_EXPONENT_DIGITS)
    minus = "-" if exponent.startswith("-") else ""
    return f"{sign}{mantissa}\u00d710{(minus + digits).translate(_SUPERSCRIPTS)}"


def _based(letter: str) -> Callable[[Any, Clause], str]:
    """Write an integer in base 2, 8 or 16."""

    def write(value: Any, clause: Clause) -> str:
        if type(value) is bool and letter == "b":
            return "1" if value else "0"
        if type(value) is str and letter in "xX":
            value = value.encode()
        if type(value) is bytes and letter in "xX":
            return value.hex() if letter == "x" else value.hex().upper()
        if type(value) not in _INTEGERS:
            raise _misfit(value, clause)
        return format(int(value), letter)

    return write


_WRITERS: dict[str, Callable[[Any, Clause], str]] = {
    "s": _string,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _based("b"),
    "x": _based("x"),
    "X": _based("X"),
    "o": _based("o"),
}


def _list(values: list[Any]) -> str:
    return f"[{', '.join(map(_member, values))}]"


def _map(value: MapValue) -> str:
    pairs = [(_key(key), _member(each)) for key, each in value.entries.values()]
    pairs.sort(key=lambda pair: pair[0].encode())
    return f"{{{', '.join(f'{key}:{each}' for key, each in pairs)}}}"


def _key(key: Any) -> str:
    if type(key) not in (str, bool, int, Uint):
        raise FormatError(
            f"no formatting function for map key of type {type_name(key)}"
        )
    return _member(key)


def _member(value: Any) -> str:
    """Write a value inside a list or map."""
    kind = type(value)
    if kind is list:
        return _list(value)
    if kind is MapValue:
        return _map(value)
    if value is None:
        return "null"
    if kind not in _PLAIN:
        raise FormatError(f"no formatting function for {type_name(value)}")
    if kind is float:
        return _member_double(value)
    text = _plain(value)
    if kind is str:
        return quoted(text)
    if kind is bytes:
        return f"b{quoted(text)}"
    if kind is Timestamp:
        return f"timestamp({quoted(text)})"
    return f"duration({quoted(text)})" if kind is Duration else text


def _member_double(number: float) -> str:
    if math.isnan(number):
        return '"NaN"'
    if math.isinf(number):
        return '"+Inf"' if number > 0 else '"-Inf"'
    return f"{number:.{_PRECISION}f}"


def _quote(text: Any) -> Any:
    return cel_quoted(text) if type(text) is str else no_overload(text)


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "format": _format,
    "strings.quote": _quote,
}
