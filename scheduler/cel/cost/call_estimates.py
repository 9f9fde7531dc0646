"""The highest cost of a call and the size of its result, before any argument is known.

This module has the same functions as `costs.py`, with ranges of sizes instead of
values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from scheduler.cel.cost.costs import (
    ALLOCATION_COST,
    COMPARISON_FACTOR,
    PATTERN_FACTOR,
    TEXT_COMPARISON_FACTOR,
    TEXT_FACTOR,
)
from scheduler.cel.cost.schema_sizes import size_at
from scheduler.cel.cost.sizes import (
    UNBOUNDED,
    UNKNOWN,
    Size,
    exactly,
    plus,
    times,
    times_factor,
)
from scheduler.cel.syntax.static_types import (
    BYTES,
    CIDR,
    FORMAT,
    IP,
    QUANTITY,
    SEMVER,
    STRING,
    URL,
)
from scheduler.cel.syntax.tree import Literal, Node

# Limits that Kubernetes assumes for named formats.
_FORMAT_NAME_SIZE = 64
_FORMAT_PATTERN_SIZE = 128
# Bytes of the longest address.
_ADDRESS_SIZE = 16


class Operand(NamedTuple):
    """An argument of a call, with its path from `device` and its size, if known."""

    node: Node
    path: tuple[str, ...]
    size: Size | None

    @property
    def range(self) -> Size:
        """Return its size, or the range of all sizes if it is unknown."""
        return UNKNOWN if self.size is None else self.size


class CallEstimate(NamedTuple):
    """The cost of a call without its arguments, and the size of its result, if known."""

    cost: int
    size: Size | None = None


_Estimate = Callable[[Operand | None, list[Operand]], CallEstimate]


def _element_size(target: Operand) -> Size:
    """Return the size of the elements of a list, by the schema alone."""
    size = size_at((*target.path, "@items")) if target.path else None
    return UNKNOWN if size is None else size


def _visit_all(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del args
    if target is None:
        return CallEstimate(1)
    params = target.node.type.params
    if not params:
        return CallEstimate(times_factor(target.range.high, TEXT_FACTOR))
    each = 1
    if params[0] in (STRING, BYTES):
        each = plus(each, times_factor(_element_size(target).high, TEXT_FACTOR))
    return CallEstimate(times(target.range.high, each))


def _rewrite(target: Operand | None, args: list[Operand]) -> CallEstimate:
    size = (target or args[0]).range
    return CallEstimate(times_factor(size.high, TEXT_FACTOR), size)


def _read(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del target
    return CallEstimate(times_factor(args[0].range.high, TEXT_FACTOR))


def _replaced(size: Size, old: Size, new: Size) -> Size:
    """Return the size of a text after parts of it are replaced."""
    kept_high = count_high = 0
    if old.low == 0:
        # Go finds an empty text before and after every character.
        count_high, kept_high = min(size.high + 1, UNBOUNDED), size.high
    elif new.high <= old.low:
        kept_high = size.high
    else:
        count_high = math.ceil(size.high / old.low)
    kept_low = count_low = 0
    if old.high == 0:
        count_low, kept_low = min(size.low + 1, UNBOUNDED), size.low
    elif old.high <= new.low:
        kept_low = size.low
    else:
        count_low = math.ceil(size.low / old.high)
    return Size(count_low, count_high).times(new).plus(Size(kept_low, kept_high))


def _replace(target: Operand | None, args: list[Operand]) -> CallEstimate:
    if target is None:
        return CallEstimate(1)
    return CallEstimate(
        times_factor(target.range.high, 2 * TEXT_FACTOR),
        _replaced(target.range, args[0].range, args[1].range),
    )


def _written_int(operand: Operand) -> int | None:
    """Return the value of an argument that is a number literal, or None."""
    node = operand.node
    if isinstance(node, Literal) and type(node.value) is int:
        return node.value
    return None


def _split(target: Operand | None, args: list[Operand]) -> CallEstimate:
    if target is None:
        return CallEstimate(1)
    parts = target.range.high
    limit = _written_int(args[1]) if len(args) > 1 else None
    if limit is not None:
        # A negative limit wraps around, like the 64-bit numbers of Kubernetes.
        parts = limit % (UNBOUNDED + 1)
    return CallEstimate(
        times_factor(target.range.high, 2 * TEXT_FACTOR), Size(0, parts)
    )


def _join(target: Operand | None, args: list[Operand]) -> CallEstimate:
    if target is None:
        return CallEstimate(1)
    count = target.range
    size = count.times(_element_size(target)) if target.node.type.params else Size(0, 0)
    if args:
        separators = Size(max(count.low - 1, 0), max(count.high - 1, 0))
        size = size.plus(args[0].range.times(separators))
    return CallEstimate(times_factor(size.high, TEXT_FACTOR), size)


def _pattern_cost(text: Size, pattern: Size) -> int:
    return times(
        times_factor(plus(text.high, 1), TEXT_FACTOR),
        times_factor(pattern.high, PATTERN_FACTOR),
    )


def _find(target: Operand | None, args: list[Operand]) -> CallEstimate:
    if target is None:
        return CallEstimate(1)
    return CallEstimate(
        _pattern_cost(target.range, args[0].range), Size(0, target.range.high)
    )


def _matches(target: Operand | None, args: list[Operand]) -> CallEstimate:
    return CallEstimate(
        1 if target is None else _pattern_cost(target.range, args[0].range)
    )


def _contains(target: Operand | None, args: list[Operand]) -> CallEstimate:
    if target is None:
        return CallEstimate(1)
    return CallEstimate(
        times(
            times_factor(target.range.high, TEXT_FACTOR),
            times_factor(args[0].range.high, TEXT_FACTOR),
        )
    )


def _in_list(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del target
    return CallEstimate(args[1].range.high)


def _shorter(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del target
    return CallEstimate(
        times_factor(min(args[0].range.high, args[1].range.high), TEXT_FACTOR)
    )


def _equality(target: Operand | None, args: list[Operand]) -> CallEstimate:
    left, right = args[0].node.type, args[1].node.type
    if left == right and left in (QUANTITY, SEMVER, IP, CIDR):
        return CallEstimate(1)
    if left == right and left == FORMAT:
        return CallEstimate(times_factor(_FORMAT_NAME_SIZE, TEXT_FACTOR))
    if left == right and left == URL:
        size = 1 if args[1].size is None else args[1].size.high
        return CallEstimate(times_factor(size, TEXT_FACTOR))
    return _shorter(target, args)


def _together(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del target
    size = args[0].range.plus(args[1].range)
    return CallEstimate(times_factor(size.high, TEXT_FACTOR), size)


def _appended(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del target
    return CallEstimate(1, args[0].range.plus(args[1].range))


def _to_bytes(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del target
    size = args[0].range
    # A character takes up to four bytes. The multiplication wraps around at 64 bits.
    return CallEstimate(
        times_factor(size.high, TEXT_FACTOR),
        Size(size.low, size.high * 4 % (UNBOUNDED + 1)),
    )


def _from_bytes(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del target
    size = args[0].range
    return CallEstimate(
        times_factor(size.high, TEXT_FACTOR), Size(size.low // 4, size.high)
    )


def _pairs(factor: int) -> _Estimate:
    def estimate(target: Operand | None, args: list[Operand]) -> CallEstimate:
        del target
        pairs = times(args[0].range.high, args[1].range.high)
        return CallEstimate(plus(1, times_factor(pairs, float(factor))))

    return estimate


def _parsed_url(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del target
    size = args[0].range
    return CallEstimate(times_factor(size.high, TEXT_FACTOR), size)


def _read_twice(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del target
    return CallEstimate(times_factor(args[0].range.high, 2 * TEXT_FACTOR))


def _contained(*, cidr: bool, text: bool) -> _Estimate:
    def estimate(target: Operand | None, args: list[Operand]) -> CallEstimate:
        del target
        cost = times_factor(2 * _ADDRESS_SIZE, TEXT_FACTOR)
        if cidr:
            cost = plus(cost, times_factor(_ADDRESS_SIZE, TEXT_FACTOR), 1)
        if text:
            cost = plus(cost, times_factor(args[0].range.high, TEXT_FACTOR))
        return CallEstimate(cost)

    return estimate


def _validated(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del target
    cost = times_factor(args[0].range.high, TEXT_FACTOR)
    return CallEstimate(times_factor(cost, _FORMAT_PATTERN_SIZE * PATTERN_FACTOR))


def _formatted(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del args
    size = UNKNOWN if target is None else target.range
    return CallEstimate(times_factor(size.high, TEXT_FACTOR))


def _quoted(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del target
    size = args[0].range
    longest = (size.high * 2 + 2) % (UNBOUNDED + 1)
    shortest = (size.low + 2) % (UNBOUNDED + 1)
    return CallEstimate(times_factor(size.high, TEXT_FACTOR), Size(shortest, longest))


def _allocating(factor: float, size: Size) -> CallEstimate:
    return CallEstimate(plus(times_factor(size.high, factor), ALLOCATION_COST), size)


def _position(operand: Operand, otherwise: int) -> int:
    """Return the value of a literal position; a negative position counts as 0."""
    written = _written_int(operand)
    return otherwise if written is None else max(written, 0)


def _sliced(target: Operand | None, args: list[Operand]) -> CallEstimate:
    size = UNKNOWN if target is None else target.range
    start = _position(args[0], 0)
    end = _position(args[1], size.high)
    return _allocating(1, exactly((end - start) % (UNBOUNDED + 1)))


def _ranged(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del target
    return _allocating(1, exactly(_position(args[0], UNBOUNDED)))


def _reversed(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del args
    return _allocating(1, UNKNOWN if target is None else target.range)


def _flattened(target: Operand | None, args: list[Operand]) -> CallEstimate:
    depth = _position(args[0], UNBOUNDED) if args else 1
    return _allocating(float(depth), UNKNOWN if target is None else target.range)


def _self_compared(*, texts: bool, by_argument: bool = False) -> _Estimate:
    """Return the estimate of sorting, or of comparing each element with every other."""
    factor = TEXT_COMPARISON_FACTOR if texts else COMPARISON_FACTOR

    def estimate(target: Operand | None, args: list[Operand]) -> CallEstimate:
        operand = args[0] if by_argument else target
        size = UNKNOWN if operand is None else operand.range
        return _allocating(factor, size.times(size))

    return estimate


_TEXT_ELEMENTS = ("list_string_", "list_bytes_")


def _list_estimate(overload: str) -> _Estimate | None:
    """Return the estimate of a list extension function; these are looked up first."""
    texts = overload.startswith(_TEXT_ELEMENTS)
    if overload.endswith("_sort"):
        return _self_compared(texts=texts)
    if overload.endswith("_sortByAssociatedKeys"):
        return _self_compared(texts=texts, by_argument=True)
    return _LIST_OVERLOADS.get(overload)


_LIST_OVERLOADS: dict[str, _Estimate] = {
    "list_slice": _sliced,
    "lists_range": _ranged,
    "list_reverse": _reversed,
    "list_flatten": _flattened,
    "list_flatten_int": _flattened,
    "list_distinct": _self_compared(texts=False),
}

_BY_FUNCTION: dict[str, _Estimate] = {
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _visit_all
    ),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _rewrite),
    **dict.fromkeys(
        ("quantity", "isQuantity", "semver", "isSemver", "cidr", "isIP", "isCIDR"),
        _read,
    ),
    "url": _parsed_url,
    "ip.isCanonical": _read_twice,
    "validate": _validated,
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(("find", "findAll"), _find),
    "_==_": _equality,
    "_!=_": _shorter,
    "sets.contains": _pairs(1),
    "sets.intersects": _pairs(1),
    "sets.equivalent": _pairs(2),
}

_BY_OVERLOAD: dict[str, _Estimate] = {
    **dict.fromkeys(("starts_with_string", "ends_with_string", "string_to_ip"), _read),
    "string_format": _formatted,
    "strings_quote": _quoted,
    "containsIP_1": _contained(cidr=False, text=False),
    "cidr_containsIP_string": _contained(cidr=False, text=True),
    "containsCIDR_1": _contained(cidr=True, text=False),
    "cidr_containsCIDR_string": _contained(cidr=True, text=True),
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _from_bytes,
    "in_list": _in_list,
    **{
        f"{word}_{kind}": _shorter
        for word in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
    **dict.fromkeys(("add_string", "add_bytes"), _together),
    "add_list": _appended,
    "matches_string": _matches,
    "contains_string": _contains,
}


def estimate_call(
    function: str, overload: str, target: Operand | None, args: list[Operand]
) -> CallEstimate:
    """Estimate one overload of a call.

    Args:
        function: CEL name of the function.
        overload: id of the overload.
        target: receiver of a member call.
        args: the other arguments.

    Returns:
        The cost without that of the arguments, and the size of the result, if known.

    """
    estimate = (
        _list_estimate(overload)
        or _BY_FUNCTION.get(function)
        or _BY_OVERLOAD.get(overload)
    )
    return CallEstimate(1) if estimate is None else estimate(target, args)
