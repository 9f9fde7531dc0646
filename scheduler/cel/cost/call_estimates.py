"""What a call may cost at most, and how large its result may be, before any argument is known.

The counterpart of `costs.py`: the same functions, with ranges of sizes in place of values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from scheduler.cel.cost.costs import PATTERN_FACTOR, TEXT_FACTOR
from scheduler.cel.cost.schema_sizes import size_at
from scheduler.cel.cost.sizes import UNBOUNDED, UNKNOWN, Size, plus, times, times_factor
from scheduler.cel.syntax.static_types import BYTES, QUANTITY, SEMVER, STRING
from scheduler.cel.syntax.tree import Literal, Node


class Operand(NamedTuple):
    """An argument as the estimate sees it."""

    node: Node
    path: tuple[str, ...]
    size: Size | None

    @property
    def range(self) -> Size:
        """Its size, or any size."""
        return UNKNOWN if self.size is None else self.size


class CallEstimate(NamedTuple):
    """Cost of a call without its arguments, and the size of its result where that is known."""

    cost: int
    size: Size | None = None


_Estimate = Callable[[Operand | None, list[Operand]], CallEstimate]


def _element_size(target: Operand) -> Size:
    """Size of the elements of a list, by the schema alone."""
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
    """Size of a text after replacing: the longest and shortest that replacing could make it."""
    kept_high = count_high = 0
    if old.low == 0:
        # An empty text is found around every character.
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
    return CallEstimate(times_factor(target.range.high, 2 * TEXT_FACTOR), _replaced(target.range, args[0].range, args[1].range))


def _split(target: Operand | None, args: list[Operand]) -> CallEstimate:
    if target is None:
        return CallEstimate(1)
    parts = target.range.high
    if len(args) > 1 and isinstance(args[1].node, Literal) and type(args[1].node.value) is int:
        # A negative limit wraps round, as the 64 bits of Kubernetes do.
        parts = args[1].node.value % (UNBOUNDED + 1)
    return CallEstimate(times_factor(target.range.high, 2 * TEXT_FACTOR), Size(0, parts))


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
    return times(times_factor(plus(text.high, 1), TEXT_FACTOR), times_factor(pattern.high, PATTERN_FACTOR))


def _find(target: Operand | None, args: list[Operand]) -> CallEstimate:
    if target is None:
        return CallEstimate(1)
    return CallEstimate(_pattern_cost(target.range, args[0].range), Size(0, target.range.high))


def _matches(target: Operand | None, args: list[Operand]) -> CallEstimate:
    return CallEstimate(1 if target is None else _pattern_cost(target.range, args[0].range))


def _contains(target: Operand | None, args: list[Operand]) -> CallEstimate:
    if target is None:
        return CallEstimate(1)
    return CallEstimate(times(times_factor(target.range.high, TEXT_FACTOR), times_factor(args[0].range.high, TEXT_FACTOR)))


def _in_list(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del target
    return CallEstimate(args[1].range.high)


def _shorter(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del target
    return CallEstimate(times_factor(min(args[0].range.high, args[1].range.high), TEXT_FACTOR))


def _equality(target: Operand | None, args: list[Operand]) -> CallEstimate:
    left, right = args[0].node.type, args[1].node.type
    return CallEstimate(1) if left == right and left in (QUANTITY, SEMVER) else _shorter(target, args)


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
    # One character may take four bytes; the multiplication wraps round in 64 bits.
    return CallEstimate(times_factor(size.high, TEXT_FACTOR), Size(size.low, size.high * 4 % (UNBOUNDED + 1)))


def _from_bytes(target: Operand | None, args: list[Operand]) -> CallEstimate:
    del target
    size = args[0].range
    return CallEstimate(times_factor(size.high, TEXT_FACTOR), Size(size.low // 4, size.high))


def _pairs(factor: int) -> _Estimate:
    def estimate(target: Operand | None, args: list[Operand]) -> CallEstimate:
        del target
        return CallEstimate(plus(1, times_factor(times(args[0].range.high, args[1].range.high), float(factor))))

    return estimate


_BY_FUNCTION: dict[str, _Estimate] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _visit_all),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _rewrite),
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver"), _read),
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
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _read),
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _from_bytes,
    "in_list": _in_list,
    **{f"{word}_{kind}": _shorter for word in ("less", "less_equals", "greater", "greater_equals") for kind in ("string", "bytes")},
    **dict.fromkeys(("add_string", "add_bytes"), _together),
    "add_list": _appended,
    "matches_string": _matches,
    "contains_string": _contains,
}


def estimate_call(function: str, overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate:
    """Estimate one overload of a call.

    Args:
        function: CEL name of the function.
        overload: id of the overload.
        target: receiver of a member call.
        args: the other arguments.

    Returns:
        Cost without the arguments' own, and the size of the result if it is known.

    """
    estimate = _BY_FUNCTION.get(function) or _BY_OVERLOAD.get(overload)
    return CallEstimate(1) if estimate is None else estimate(target, args)
