"""Conversions between CEL types."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime import times
from scheduler.cel.runtime.networks import Cidr, Ip
from scheduler.cel.runtime.values import (
    INT64_MAX,
    INT64_MIN,
    UINT64_MAX,
    Duration,
    Timestamp,
    Uint,
    type_name,
)

_SIGNED = re.compile(r"[+-]?[0-9]+\Z")
_UNSIGNED = re.compile(r"[0-9]+\Z")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})

# A longer number does not fit into 64 bits, and Python refuses to convert thousands of
# digits.
_DIGITS_MAX = 40

# Outside this range, Go's `%g` uses exponents.
_EXPONENT_MIN = -4
_EXPONENT_MAX = 6


def _fails(value: Any, wanted: str) -> EvalError:
    return EvalError(f"type conversion error from '{type_name(value)}' to '{wanted}'")


def to_int(value: Any) -> Any:
    """Return `int(value)`; timestamps become seconds, durations nanoseconds."""
    kind = type(value)
    if kind is int:
        return value
    if kind is Uint:
        return int(value) if value <= INT64_MAX else EvalError("integer overflow")
    if kind is float:
        inside = math.isfinite(value) and float(INT64_MIN) < value < float(INT64_MAX)
        return math.trunc(value) if inside else EvalError("integer overflow")
    if kind is Duration:
        return value.nanos
    if kind is Timestamp:
        return value.nanos // times.NANOS_PER_SECOND
    if kind is str and _SIGNED.match(value):
        number = _whole(value)
        if number is not None and INT64_MIN <= number <= INT64_MAX:
            return number
    return _fails(value, "int")


def to_uint(value: Any) -> Any:
    """Return `uint(value)`."""
    kind = type(value)
    if kind is Uint:
        return value
    if kind is int:
        return Uint(value) if value >= 0 else EvalError("unsigned integer overflow")
    if kind is float:
        inside = math.isfinite(value) and 0 <= value < float(UINT64_MAX)
        return (
            Uint(math.trunc(value))
            if inside
            else EvalError("unsigned integer overflow")
        )
    if kind is str and _UNSIGNED.match(value):
        number = _whole(value)
        if number is not None and number <= UINT64_MAX:
            return Uint(number)
    return _fails(value, "uint")


def _whole(text: str) -> int | None:
    digits = text.lstrip("+-").lstrip("0") or "0"
    if len(digits) > _DIGITS_MAX:
        return None
    return -int(digits) if text.startswith("-") else int(digits)


def to_double(value: Any) -> Any:
    """Return `double(value)`."""
    kind = type(value)
    if kind in (float, int, Uint):
        return float(value)
    if kind is str and _DECIMAL.match(value):
        number = float(value)
        if math.isfinite(number):
            return number
    if (
        kind is str
        and value.lstrip("+-").lower() in ("inf", "infinity", "nan")
        and value[1:2] not in ("+", "-")
    ):
        return float(value)
    return _fails(value, "double")


def _double_text(value: float) -> str:
    """Return a double in the notation of Go's `%g`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    mantissa, _, exponent_text = f"{value!r}e".partition("e")
    exponent_text = exponent_text.rstrip("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    point = (
        len(whole) + int(exponent_text or "0") - (len(whole + fraction) - len(digits))
    )
    digits = digits.rstrip("0") or "0"
    if value == 0:
        return f"{sign}0"
    exponent = point - 1
    if exponent < _EXPONENT_MIN or exponent >= _EXPONENT_MAX:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return (
            f"{sign}{digits[0]}{tail}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"
        )
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    whole = digits[:point].ljust(point, "0")
    return f"{sign}{whole}" + (f".{digits[point:]}" if len(digits) > point else "")


def to_string(value: Any) -> Any:
    """Return `string(value)`."""
    kind = type(value)
    if kind is str:
        return value
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is Uint:
        return str(int(value))
    if kind is float:
        return _double_text(value)
    if kind is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return EvalError("invalid UTF-8 in bytes, cannot convert to string")
    if kind is Duration:
        return times.format_duration(value)
    if kind is Timestamp:
        return times.format_timestamp(value)
    if kind is Ip or kind is Cidr:
        return str(value)
    return _fails(value, "string")


def to_bytes(value: Any) -> Any:
    """Return `bytes(value)`."""
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass")
    return value if type(value) is bytes else _fails(value, "bytes")


def to_bool(value: Any) -> Any:
    """Return `bool(value)`."""
    if type(value) is bool:
        return value
    if type(value) is str and value in _TRUE | _FALSE:
        return value in _TRUE
    return _fails(value, "bool")


def to_duration(value: Any) -> Any:
    """Return `duration(value)`."""
    if type(value) is str:
        return times.parse_duration(value)
    return (
        value if type(value) is Duration else _fails(value, "google.protobuf.Duration")
    )


def to_timestamp(value: Any) -> Any:
    """Return `timestamp(value)`; a number means seconds since 1970."""
    if type(value) is str:
        return times.parse_timestamp(value)
    if type(value) is int:
        return times.timestamp(value * times.NANOS_PER_SECOND)
    return (
        value
        if type(value) is Timestamp
        else _fails(value, "google.protobuf.Timestamp")
    )


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "int": to_int,
    "uint": to_uint,
    "double": to_double,
    "string": to_string,
    "bytes": to_bytes,
    "bool": to_bool,
    "duration": to_duration,
    "timestamp": to_timestamp,
}
