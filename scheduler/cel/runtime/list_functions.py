"""Functions on lists: sums, extremes, order, parts, and lists as sets."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cmp_to_key
from typing import Any

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime.operators import add, contained
from scheduler.cel.runtime.values import (
    Duration,
    Timestamp,
    Uint,
    compare,
    equal,
    no_overload,
)

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


# Types whose values have an order.
_ORDERED = (int, Uint, float, str, bytes, bool, Duration, Timestamp)


# Go uses insertion sort up to this length, which keeps the order of equal elements.
# Above it, the order of equal elements depends on the algorithm.
_STABLE_MAX = 12


def _extreme(sign: int, name: str) -> Function:
    def extreme(values: Any) -> Any:
        if type(values) is not list:
            return no_overload(values)
        if any(type(value) not in _ORDERED for value in values):
            return no_overload(values)
        if not values:
            return EvalError(f"{name} called on empty list")
        best = values[0]
        for value in values[1:]:
            # Values that cannot be compared keep the best value so far, as in
            # Kubernetes.
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
            return False  # the elements after it are not compared
    return True


def _all_in(values: list[Any], others: list[Any]) -> bool:
    return all(contained(value, others) for value in values)


def _sets(decide: Callable[[list[Any], list[Any]], bool]) -> Function:
    def answer(a: Any, b: Any) -> Any:
        if type(a) is not list or type(b) is not list:
            return no_overload(a, b)
        return decide(a, b)

    return answer


def _sum_of_unknown(values: Any) -> Any:
    """Return the sum of a list whose type is known only at run time; 0 if it is empty."""
    if type(values) is not list:
        return no_overload(values)
    kind = type(values[0]) if values else int
    zero = {int: 0, Uint: Uint(0), float: 0.0, Duration: Duration(0)}.get(kind)
    return no_overload(values) if zero is None else _sum(zero)(values)


def _slice(values: Any, start: Any, end: Any) -> Any:
    if type(values) is not list or type(start) is not int or type(end) is not int:
        return no_overload(values, start, end)
    if not 0 <= start <= end <= len(values):
        return EvalError(
            f"cannot slice({start}, {end}) a list of {len(values)} elements"
        )
    return values[start:end]


def _flatten(values: Any, depth: Any = 1) -> Any:
    if type(values) is not list or type(depth) is not int:
        return no_overload(values, depth)
    if depth < 0:
        return EvalError("level must be non-negative")
    flat: list[Any] = []
    _flatten_into(flat, values, depth)
    return flat


def _flatten_into(flat: list[Any], values: list[Any], depth: int) -> None:
    for value in values:
        if type(value) is list and depth:
            _flatten_into(flat, value, depth - 1)
        else:
            flat.append(value)


def _sort(values: Any) -> Any:
    return _sort_by_keys(values, values)


def _sort_by_keys(values: Any, keys: Any) -> Any:
    if type(values) is not list or type(keys) is not list:
        return no_overload(values, keys)
    if not keys:
        return values
    if type(keys[0]) not in _ORDERED:
        return EvalError("list elements must be comparable")
    if any(type(key) is not type(keys[0]) for key in keys):
        return EvalError("list elements must have the same type")
    if len(keys) <= _STABLE_MAX:
        order = _insertion_sorted(keys)
    else:
        order = sorted(range(len(keys)), key=_by_comparing(keys))
        if not _has_one_order(values, keys, order):
            return EvalError(
                f"sorting more than {_STABLE_MAX} elements with equal keys "
                "has no defined order in Kubernetes"
            )
    return [values[position] for position in order]


def _by_comparing(keys: list[Any]) -> Callable[[int], Any]:
    def order(a: int, b: int) -> int:
        found = compare(keys[a], keys[b])
        return found if isinstance(found, int) else 0

    return cmp_to_key(order)


def _insertion_sorted(keys: list[Any]) -> list[int]:
    """Sort positions as Go does for short lists, NaN included."""
    order = list(range(len(keys)))
    for end in range(1, len(order)):
        at = end
        while at > 0 and compare(keys[order[at]], keys[order[at - 1]]) == -1:
            order[at], order[at - 1] = order[at - 1], order[at]
            at -= 1
    return order


def _has_one_order(values: list[Any], keys: list[Any], order: list[int]) -> bool:
    """Return whether keys that are equal or not comparable belong to equal values only."""
    for before, after in itertools.pairwise(order):
        ordered = compare(keys[before], keys[after]) == -1
        if not ordered and equal(values[before], values[after]) is not True:
            return False
    return True


def _range(end: Any) -> Any:
    return list(range(end)) if type(end) is int else no_overload(end)


def _reverse(values: Any) -> Any:
    return values[::-1] if type(values) is list else no_overload(values)


def _distinct(values: Any) -> Any:
    if type(values) is not list:
        return no_overload(values)
    kept: list[Any] = []
    for value in values:
        if not any(equal(value, other) is True for other in kept):
            kept.append(value)
    return kept


# The sum of an empty list depends on its declared type.
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
    "slice": _slice,
    "flatten": _flatten,
    "sort": _sort,
    "@sortByAssociatedKeys": _sort_by_keys,
    "lists.range": _range,
    "reverse": _reverse,
    "distinct": _distinct,
}
