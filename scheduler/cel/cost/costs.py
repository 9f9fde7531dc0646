"""What a call costs at run time, in the units of the CEL cost model.

Only calls whose cost depends on the size of their arguments are listed here; any other call costs 1. Kubernetes chooses by function
name first, then by overload, and an overload is only known when the static types leave a single one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scheduler.cel.runtime.amounts import Amount
from scheduler.cel.runtime.values import MapValue
from scheduler.kubernetes.semver import Version

# Cost of making a collection, and factors per character.
LIST_COST = 10
MAP_COST = 30
TEXT_FACTOR = 0.1
PATTERN_FACTOR = 0.25

CallCost = Callable[[list[Any], Any], int]


def size_of(value: Any) -> int:
    """Characters, bytes, elements or entries; 1 for everything else."""
    kind = type(value)
    if kind is str or kind is bytes or kind is list:
        return len(value)
    return len(value.entries) if kind is MapValue else 1


def _traversal(value: Any) -> int:
    kind = type(value)
    if kind is str:
        return int(len(value.encode()) * TEXT_FACTOR)
    if kind is bytes:
        return int(len(value) * TEXT_FACTOR)
    if kind is list:
        return sum(map(_traversal, value))
    if kind is MapValue:
        return sum(_traversal(key) + _traversal(each) for key, each in value.entries.values())
    return 1


def _first(args: list[Any], result: Any) -> int:
    del result
    return math.ceil(size_of(args[0]) * TEXT_FACTOR)


def _first_twice(args: list[Any], result: Any) -> int:
    del result
    return math.ceil(size_of(args[0]) * 2 * TEXT_FACTOR)


def _made(args: list[Any], result: Any) -> int:
    del args
    return math.ceil(size_of(result) * 2 * TEXT_FACTOR)


def _visited(args: list[Any], result: Any) -> int:
    del result
    return _traversal(args[0])


def _regex(args: list[Any], result: Any) -> int:
    del result
    return math.ceil((1 + size_of(args[0])) * TEXT_FACTOR) * math.ceil(size_of(args[1]) * PATTERN_FACTOR)


def _shorter(args: list[Any], result: Any) -> int:
    del result
    return math.ceil(min(size_of(args[0]), size_of(args[1])) * TEXT_FACTOR)


def _equality(args: list[Any], result: Any) -> int:
    return 1 if type(args[0]) in (Amount, Version) else _shorter(args, result)


def _both(args: list[Any], result: Any) -> int:
    del result
    return math.ceil((size_of(args[0]) + size_of(args[1])) * TEXT_FACTOR)


def _product(args: list[Any], result: Any) -> int:
    del result
    return math.ceil(size_of(args[0]) * TEXT_FACTOR) * math.ceil(size_of(args[1]) * TEXT_FACTOR)


def _container(args: list[Any], result: Any) -> int:
    del result
    return size_of(args[1])


def _pairs(factor: int) -> CallCost:
    def cost(args: list[Any], result: Any) -> int:
        del result
        return 1 + size_of(args[0]) * size_of(args[1]) * factor

    return cost


_BY_FUNCTION: dict[str, CallCost] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _visited),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim", "quantity", "isQuantity", "semver", "isSemver"), _first),
    **dict.fromkeys(("replace", "split"), _first_twice),
    "join": _made,
    **dict.fromkeys(("find", "findAll"), _regex),
    "_==_": _equality,
    "_!=_": _shorter,
    "sets.contains": _pairs(1),
    "sets.intersects": _pairs(1),
    "sets.equivalent": _pairs(2),
}

_BY_OVERLOAD: dict[str, CallCost] = {
    **dict.fromkeys(("starts_with_string", "ends_with_string", "string_to_bytes", "bytes_to_string"), _first),
    "in_list": _container,
    **{f"{word}_{kind}": _shorter for word in ("less", "less_equals", "greater", "greater_equals") for kind in ("string", "bytes")},
    **dict.fromkeys(("add_string", "add_bytes"), _both),
    "matches_string": _regex,
    "contains_string": _product,
}


def call_cost(function: str, overloads: tuple[str, ...]) -> CallCost | None:
    """Give the function that computes the cost of a call, or None if it is 1 for all arguments."""
    by_function = _BY_FUNCTION.get(function)
    if by_function is not None:
        return by_function
    return _BY_OVERLOAD.get(overloads[0]) if len(overloads) == 1 else None
