"""Functions on lists: sums, extremes, order, and lists as sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime.operators import add, contained
from scheduler.cel.runtime.values import Duration, Timestamp, Uint, compare, no_overload

Function = Callable[..., Any]


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
    "sum": _sum_of_unknown,
    "isSorted": _is_sorted,
    "max": _extreme(-1, "max"),
    "min": _extreme(1, "min"),
    "sets.contains": _sets(lambda a, b: _all_in(b, a)),
    "sets.equivalent": _sets(lambda a, b: _all_in(a, b) and _all_in(b, a)),
    "sets.intersects": _sets(lambda a, b: any(contained(value, b) for value in a)),
}
