"""The cost of a call at run time, in the units of the CEL cost model.

Only calls whose cost depends on the sizes of their arguments are listed here. Any other
call costs 1. Kubernetes looks up the functions of the list extensions by overload, then
a function by name, then any overload. An overload is known only if exactly one matches
the static types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scheduler.cel.errors import Aborted
from scheduler.cel.runtime.amounts import CelQuantity
from scheduler.cel.runtime.formats import NamedFormat
from scheduler.cel.runtime.networks import Cidr, Ip, network_size
from scheduler.cel.runtime.values import ABSENT, MapValue, Opaque, Optional
from scheduler.kubernetes.semver import SemanticVersion

# Cost of creating a collection, and factors per character.
LIST_COST = 10
MAP_COST = 30
TEXT_FACTOR = 0.1
PATTERN_FACTOR = 0.25

CallCost = Callable[[list[Any], Any], int]


# The cost of a list function includes its result, and comparing each element with every
# other.
ALLOCATION_COST = LIST_COST + 1
COMPARISON_FACTOR = 2.0
TEXT_COMPARISON_FACTOR = COMPARISON_FACTOR + TEXT_FACTOR


def size_of(value: Any) -> int:
    """Return the number of characters, bytes, elements or entries; 1 for other values."""
    kind = type(value)
    if kind is str or kind is bytes or kind is list:
        return len(value)
    if kind is MapValue:
        return len(value.entries)
    if kind is Ip or kind is Cidr:
        return network_size(value)
    if kind is Optional and value.value is not ABSENT:
        return size_of(value.value)
    return 1


def _traversal(value: Any) -> int:
    kind = type(value)
    if kind is str:
        return int(len(value.encode()) * TEXT_FACTOR)
    if kind is bytes:
        return int(len(value) * TEXT_FACTOR)
    if kind is list:
        return sum(map(_traversal, value))
    if kind is MapValue:
        return sum(
            _traversal(key) + _traversal(each) for key, each in value.entries.values()
        )
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
    return math.ceil((1 + size_of(args[0])) * TEXT_FACTOR) * math.ceil(
        size_of(args[1]) * PATTERN_FACTOR
    )


def _shorter(args: list[Any], result: Any) -> int:
    del result
    return math.ceil(min(size_of(args[0]), size_of(args[1])) * TEXT_FACTOR)


def _equality(args: list[Any], result: Any) -> int:
    kind = type(args[0])
    if kind is CelQuantity or kind is SemanticVersion or issubclass(kind, Opaque):
        return 1
    return _shorter(args, result)


def _both(args: list[Any], result: Any) -> int:
    del result
    return math.ceil((size_of(args[0]) + size_of(args[1])) * TEXT_FACTOR)


def _product(args: list[Any], result: Any) -> int:
    del result
    return math.ceil(size_of(args[0]) * TEXT_FACTOR) * math.ceil(
        size_of(args[1]) * TEXT_FACTOR
    )


def _container(args: list[Any], result: Any) -> int:
    del result
    return size_of(args[1])


def _pairs(factor: int) -> CallCost:
    def cost(args: list[Any], result: Any) -> int:
        del result
        return 1 + size_of(args[0]) * size_of(args[1]) * factor

    return cost


def _contained(extra: int) -> CallCost:
    """Return the cost of `containsIP` or `containsCIDR`.

    It includes parsing a text argument.
    """

    def cost(args: list[Any], result: Any) -> int:
        del result
        size = size_of(args[0])
        spent = math.ceil(2 * size * TEXT_FACTOR)
        if extra:
            spent += math.ceil(size * TEXT_FACTOR) + extra
        return spent

    return cost


def _and_reading(cost: CallCost) -> CallCost:
    def with_text(args: list[Any], result: Any) -> int:
        return cost(args, result) + math.ceil(size_of(args[1]) * TEXT_FACTOR)

    return with_text


def _validation(args: list[Any], result: Any) -> int:
    del result
    if type(args[0]) is not NamedFormat:
        return 1
    pattern = math.ceil(args[0].pattern_size * PATTERN_FACTOR)
    return math.ceil((1 + size_of(args[1])) * TEXT_FACTOR) * pattern


def _allocated(args: list[Any], result: Any) -> int:
    del args
    return size_of(result) + ALLOCATION_COST


def _flattened(args: list[Any], result: Any) -> int:
    del result
    depth = args[1] if len(args) > 1 else 1
    if type(depth) is not int:
        raise _failed_count()
    return int(size_of(args[0]) * float(max(depth, 0))) + ALLOCATION_COST


def _self_compared(position: int) -> CallCost:
    """Return the cost of comparing each element of an argument with every other."""

    def cost(args: list[Any], result: Any) -> int:
        del result
        values = args[position]
        if type(values) is not list:
            raise _failed_count()
        factor = COMPARISON_FACTOR
        if values and type(values[0]) in (str, bytes):
            factor = TEXT_COMPARISON_FACTOR
        return int(len(values) ** 2 * factor) + ALLOCATION_COST

    return cost


def _failed_count() -> Aborted:
    return Aborted(
        "Kubernetes fails to count the cost of a list function whose argument is an error"
    )


# Overloads whose cost Kubernetes looks up before the name of the function.
_LIST_OVERLOADS: dict[str, CallCost] = {
    "list_slice": _allocated,
    "lists_range": _allocated,
    "list_reverse": _allocated,
    "list_flatten": _flattened,
    "list_flatten_int": _flattened,
    "list_distinct": _self_compared(0),
}

_BY_FUNCTION: dict[str, CallCost] = {
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _visited
    ),
    **dict.fromkeys(
        (
            "lowerAscii",
            "upperAscii",
            "substring",
            "trim",
            "quantity",
            "isQuantity",
            "semver",
            "isSemver",
            "url",
            "cidr",
            "isIP",
            "isCIDR",
        ),
        _first,
    ),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _first_twice),
    "join": _made,
    **dict.fromkeys(("find", "findAll"), _regex),
    "validate": _validation,
    "_==_": _equality,
    "_!=_": _shorter,
    "sets.contains": _pairs(1),
    "sets.intersects": _pairs(1),
    "sets.equivalent": _pairs(2),
    # If the overload is unknown, the cost is that of the argument types other than
    # text.
    "containsIP": _contained(0),
    "containsCIDR": _contained(1),
}

_BY_OVERLOAD: dict[str, CallCost] = {
    **dict.fromkeys(
        (
            "starts_with_string",
            "ends_with_string",
            "string_to_bytes",
            "bytes_to_string",
            "string_format",
            "strings_quote",
            "string_to_ip",
        ),
        _first,
    ),
    "cidr_containsIP_string": _and_reading(_contained(0)),
    "cidr_containsCIDR_string": _and_reading(_contained(1)),
    "in_list": _container,
    **{
        f"{word}_{kind}": _shorter
        for word in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
    **dict.fromkeys(("add_string", "add_bytes"), _both),
    "matches_string": _regex,
    "contains_string": _product,
}
_TEXT_OVERLOADS = ("cidr_containsIP_string", "cidr_containsCIDR_string")


def call_cost(function: str, overloads: tuple[str, ...]) -> CallCost | None:
    """Return the function that computes the cost of a call, or None if it is always 1."""
    overload = overloads[0] if len(overloads) == 1 else ""
    if overload.endswith("_sort"):
        return _self_compared(0)
    if overload.endswith("_sortByAssociatedKeys"):
        return _self_compared(1)
    if overload in _TEXT_OVERLOADS:
        return _BY_OVERLOAD[overload]
    return (
        _LIST_OVERLOADS.get(overload)
        or _BY_FUNCTION.get(function)
        or _BY_OVERLOAD.get(overload)
    )
