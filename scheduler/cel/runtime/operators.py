"""The operators: arithmetic, order, membership, indexing.

An operator accepts any values and never raises. It returns an error value for operands
for which it is not defined.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime import times
from scheduler.cel.runtime.values import (
    INT64_MAX,
    INT64_MIN,
    UINT64_MAX,
    Duration,
    MapValue,
    Timestamp,
    Uint,
    compare,
    equal,
    is_number,
    no_overload,
    type_name,
)


def _int(value: int) -> int | EvalError:
    return value if INT64_MIN <= value <= INT64_MAX else EvalError("integer overflow")


def _uint(value: int) -> Uint | EvalError:
    return (
        Uint(value)
        if 0 <= value <= UINT64_MAX
        else EvalError("unsigned integer overflow")
    )


def add(a: Any, b: Any) -> Any:
    """Return `a + b`."""
    kind, other = type(a), type(b)
    if kind is other:
        if kind is int:
            return _int(a + b)
        if kind is Uint:
            return _uint(a + b)
        if kind in (float, str, bytes, list):
            return a + b
        if kind is Duration:
            return times.duration(a.nanos + b.nanos)
    if {kind, other} == {Duration, Timestamp}:
        return times.timestamp(a.nanos + b.nanos)
    return no_overload(a, b)


def subtract(a: Any, b: Any) -> Any:
    """Return `a - b`."""
    kind, other = type(a), type(b)
    if kind is other:
        if kind is int:
            return _int(a - b)
        if kind is Uint:
            return _uint(int(a) - int(b))
        if kind is float:
            return a - b
        if kind in (Duration, Timestamp):
            return times.duration(a.nanos - b.nanos)
    if kind is Timestamp and other is Duration:
        return times.timestamp(a.nanos - b.nanos)
    return no_overload(a, b)


def multiply(a: Any, b: Any) -> Any:
    """Return `a * b`."""
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return _int(a * b)
        if kind is Uint:
            return _uint(a * b)
        if kind is float:
            return a * b
    return no_overload(a, b)


def divide(a: Any, b: Any) -> Any:
    """Return `a / b`; whole numbers round towards zero."""
    kind = type(a)
    if kind is not type(b) or kind not in (int, Uint, float):
        return no_overload(a, b)
    if kind is float:
        if b == 0:
            return (
                math.nan
                if a == 0 or a != a  # noqa: PLR0124 - NaN
                else math.copysign(math.inf, a) * math.copysign(1.0, b)
            )
        return a / b
    if b == 0:
        return EvalError("division by zero")
    quotient = abs(a) // abs(b)
    return (
        _int(quotient if (a < 0) == (b < 0) else -quotient)
        if kind is int
        else _uint(quotient)
    )


def modulo(a: Any, b: Any) -> Any:
    """Return `a % b`, with the sign of `a`."""
    kind = type(a)
    if kind is not type(b) or kind not in (int, Uint):
        return no_overload(a, b)
    if b == 0:
        return EvalError("modulus by zero")
    if kind is int and a == INT64_MIN and b == -1:
        return EvalError("integer overflow")
    rest = abs(a) % abs(b)
    return (-rest if a < 0 else rest) if kind is int else Uint(rest)


def negate(a: Any) -> Any:
    """Return `-a`."""
    if type(a) is int:
        return _int(-a)
    return -a if type(a) is float else no_overload(a)


def logical_not(a: Any) -> Any:
    """Return `!a`."""
    return (not a) if type(a) is bool else no_overload(a)


def not_equal(a: Any, b: Any) -> bool:
    """Return `a != b`, which is true also if `a == b` is an error, as in Kubernetes."""
    return equal(a, b) is not True


def _ordering(accept: Callable[[int], bool]) -> Callable[[Any, Any], Any]:
    def order(a: Any, b: Any) -> Any:
        found = compare(a, b)
        return found if isinstance(found, EvalError) else accept(found)

    return order


def contained(value: Any, container: Any) -> Any:
    """Return `value in container`."""
    if type(container) is MapValue:
        return value in container
    if type(container) is not list:
        return no_overload(value, container)
    return any(equal(value, each) is True for each in container)


def index(container: Any, key: Any) -> Any:
    """Return `container[key]`."""
    if type(container) is MapValue:
        return container.find(key)
    if type(container) is not list:
        return EvalError(f"no such key: {type_name(container)} cannot be indexed")
    if not is_number(key) or key != key or key != math.floor(key):  # noqa: PLR0124 - NaN
        return EvalError("a list index must be a whole number")
    if not 0 <= key < len(container):
        return EvalError(f"index out of bounds: {key}")
    return container[int(key)]


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "!_": logical_not,
    "-_": negate,
    "_+_": add,
    "_-_": subtract,
    "_*_": multiply,
    "_/_": divide,
    "_%_": modulo,
    "_==_": equal,
    "_!=_": not_equal,
    "_<_": _ordering(lambda order: order < 0),
    "_<=_": _ordering(lambda order: order <= 0),
    "_>_": _ordering(lambda order: order > 0),
    "_>=_": _ordering(lambda order: order >= 0),
    "@in": contained,
}
