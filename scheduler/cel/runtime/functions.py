"""What each function does with values.

The checker guarantees that a function gets the right number of arguments; their types may still be wrong wherever an attribute is
involved, so every function checks them and returns an error value. No function raises for what a user wrote.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime import conversions, regexes, text_functions, times
from scheduler.cel.runtime.amounts import Amount, amount_of_int, parse_amount
from scheduler.cel.runtime.values import (
    INT64_MAX,
    INT64_MIN,
    UINT64_MAX,
    Duration,
    MapValue,
    Timestamp,
    TypeValue,
    Uint,
    compare,
    equal,
    is_number,
    type_name,
)
from scheduler.kubernetes.quantity import DeclinedQuantity
from scheduler.kubernetes.semver import Version, parse_version

Function = Callable[..., Any]


def no_overload(*args: Any) -> EvalError:
    """The error value for a call that does not exist for these values."""
    return EvalError(f"no such overload for ({', '.join(type_name(arg) for arg in args)})")


def _int(value: int) -> int | EvalError:
    return value if INT64_MIN <= value <= INT64_MAX else EvalError("integer overflow")


def _uint(value: int) -> Uint | EvalError:
    return Uint(value) if 0 <= value <= UINT64_MAX else EvalError("unsigned integer overflow")


def add(a: Any, b: Any) -> Any:
    """`a + b`."""
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
    """`a - b`."""
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
    """`a * b`."""
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
    """`a / b`; whole numbers round towards zero."""
    kind = type(a)
    if kind is not type(b) or kind not in (int, Uint, float):
        return no_overload(a, b)
    if kind is float:
        if b == 0:
            return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)  # noqa: PLR0124 - NaN
        return a / b
    if b == 0:
        return EvalError("division by zero")
    quotient = abs(a) // abs(b)
    return _int(quotient if (a < 0) == (b < 0) else -quotient) if kind is int else _uint(quotient)


def modulo(a: Any, b: Any) -> Any:
    """`a % b`; the sign is that of `a`."""
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
    """`-a`."""
    if type(a) is int:
        return _int(-a)
    return -a if type(a) is float else no_overload(a)


def logical_not(a: Any) -> Any:
    """`!a`."""
    return (not a) if type(a) is bool else no_overload(a)


def not_equal(a: Any, b: Any) -> bool:
    """`a != b`; true also where `a == b` is an error. That is Kubernetes' own quirk."""
    return equal(a, b) is not True


def _ordering(accept: Callable[[int], bool]) -> Function:
    def order(a: Any, b: Any) -> Any:
        found = compare(a, b)
        return found if isinstance(found, EvalError) else accept(found)

    return order


def contained(value: Any, container: Any) -> Any:
    """`value in container`."""
    if type(container) is MapValue:
        return value in container
    if type(container) is not list:
        return no_overload(value, container)
    return any(equal(value, each) is True for each in container)


def index(container: Any, key: Any) -> Any:
    """`container[key]`."""
    if type(container) is MapValue:
        return container.find(key)
    if type(container) is not list:
        return EvalError(f"no such key: {type_name(container)} cannot be indexed")
    if not is_number(key) or key != key or key != math.floor(key):  # noqa: PLR0124 - NaN
        return EvalError("a list index must be a whole number")
    if not 0 <= key < len(container):
        return EvalError(f"index out of bounds: {key}")
    return container[int(key)]


def size(value: Any) -> Any:
    """Characters, bytes, elements or entries."""
    if type(value) is MapValue:
        return len(value.entries)
    return len(value) if type(value) in (str, bytes, list) else no_overload(value)


def _quantity(text: Any) -> Any:
    if type(text) is not str:
        return no_overload(text)
    try:
        return parse_amount(text)
    except ValueError as error:
        return EvalError(str(error))


def _semver(text: Any, normalise: Any = False) -> Any:
    if type(text) is not str or type(normalise) is not bool:
        return no_overload(text, normalise)
    try:
        return parse_version(text, normalise=normalise)
    except ValueError as error:
        return EvalError(str(error))


def _is_quantity(text: Any) -> Any:
    if type(text) is not str:
        return no_overload(text)
    try:
        parse_amount(text)
    except DeclinedQuantity as declined:
        # To Kubernetes it is one. False could make a selector true here that is false there; an error cannot.
        return EvalError(str(declined))
    except ValueError:
        return False
    return True


def _is_semver(text: Any, normalise: Any = False) -> Any:
    if type(text) is not str or type(normalise) is not bool:
        return no_overload(text, normalise)
    return not isinstance(_semver(text, normalise), EvalError)


def _of_amount(answer: Callable[[Amount], Any]) -> Function:
    def ask(amount: Any) -> Any:
        return answer(amount) if type(amount) is Amount else no_overload(amount)

    return ask


def _as_integer(amount: Amount) -> Any:
    value = amount.as_int64()
    return EvalError("cannot convert value to integer") if value is None else value


def _plus(sign: int) -> Function:
    def total(amount: Any, other: Any) -> Any:
        if type(other) is int:
            other = amount_of_int(other)
        if type(amount) is not Amount or type(other) is not Amount:
            return no_overload(amount, other)
        return amount.plus(other, sign)

    return total


def _rank(accept: Callable[[int], Any]) -> Function:
    """Compare two quantities or two versions."""

    def rank(a: Any, b: Any) -> Any:
        if type(a) is Amount and type(b) is Amount:
            return accept(a.rank(b))
        if type(a) is Version and type(b) is Version:
            return accept((a > b) - (a < b))
        return no_overload(a, b)

    return rank


def _of_version(answer: Callable[[Version], int]) -> Function:
    def ask(version: Any) -> Any:
        if type(version) is not Version:
            return no_overload(version)
        number = answer(version)
        # Kubernetes reads the 64 unsigned bits as a signed number.
        return number - (UINT64_MAX + 1) if number > INT64_MAX else number

    return ask


def _sum(zero: Any) -> Function:
    def total(values: Any) -> Any:
        if type(values) is not list:
            return no_overload(values)
        result = zero
        for value in values:
            result = add(result, value)
            if isinstance(result, EvalError):
                return result
        return result

    return total


# What may stand in a list that is sorted or searched for its extreme.
_ORDERED = (int, Uint, float, str, bytes, bool, Duration, Timestamp)


def _extreme(sign: int, name: str) -> Function:
    def extreme(values: Any) -> Any:
        if type(values) is not list or any(type(value) not in _ORDERED for value in values):
            return no_overload(values)
        if not values:
            return EvalError(f"{name} called on empty list")
        best = values[0]
        for value in values[1:]:
            # Values without a common order keep the best one so far. That is Kubernetes' own quirk.
            best = value if compare(best, value) == sign else best
        return best

    return extreme


def _is_sorted(values: Any) -> Any:
    if type(values) is not list:
        return no_overload(values)
    for position, value in enumerate(values):
        if type(value) not in _ORDERED:
            return no_overload(value)
        if position and compare(values[position - 1], value) == 1:
            return False  # what follows is not evaluated
    return True


def _all_in(values: list[Any], others: list[Any]) -> bool:
    return all(contained(value, others) for value in values)


def _sets(decide: Callable[[list[Any], list[Any]], bool]) -> Function:
    def answer(a: Any, b: Any) -> Any:
        return decide(a, b) if type(a) is list and type(b) is list else no_overload(a, b)

    return answer


def _type(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


def _sum_of_unknown(values: Any) -> Any:
    """The sum of a list whose element type is only known at run time; of an empty one it is the int 0."""
    if type(values) is not list:
        return no_overload(values)
    kind = type(values[0]) if values else int
    zero = {int: 0, Uint: Uint(0), float: 0.0, Duration: Duration(0)}.get(kind)
    return no_overload(values) if zero is None else _sum(zero)(values)


# The sum of an empty list depends on the type it has been declared with.
SUMS: dict[str, Function] = {
    "list_int_sum_int": _sum(0),
    "list_uint_sum_uint": _sum(Uint(0)),
    "list_double_sum_double": _sum(0.0),
    "list_duration_sum_duration": _sum(Duration(0)),
}

IMPLEMENTATIONS: dict[str, Function] = {
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
    "size": size,
    "dyn": lambda value: value,
    "type": _type,
    "quantity": _quantity,
    "isQuantity": _is_quantity,
    "sign": _of_amount(lambda amount: (amount.nano > 0) - (amount.nano < 0)),
    "isInteger": _of_amount(lambda amount: amount.as_int64() is not None),
    "asInteger": _of_amount(_as_integer),
    "asApproximateFloat": _of_amount(Amount.as_float),
    "add": _plus(1),
    "sub": _plus(-1),
    "semver": _semver,
    "isSemver": _is_semver,
    "major": _of_version(lambda version: version.major),
    "minor": _of_version(lambda version: version.minor),
    "patch": _of_version(lambda version: version.patch),
    "compareTo": _rank(lambda order: order),
    "isGreaterThan": _rank(lambda order: order > 0),
    "isLessThan": _rank(lambda order: order < 0),
    "sum": _sum_of_unknown,
    "isSorted": _is_sorted,
    "max": _extreme(-1, "max"),
    "min": _extreme(1, "min"),
    "sets.contains": _sets(lambda a, b: _all_in(b, a)),
    "sets.equivalent": _sets(lambda a, b: _all_in(a, b) and _all_in(b, a)),
    "sets.intersects": _sets(lambda a, b: any(contained(value, b) for value in a)),
    **conversions.IMPLEMENTATIONS,
    **text_functions.IMPLEMENTATIONS,
    "matches": text_functions.on_text(regexes.matches, 2),
    "find": text_functions.on_text(regexes.find, 2),
    "findAll": text_functions.on_text(regexes.find_all, 2),
}
