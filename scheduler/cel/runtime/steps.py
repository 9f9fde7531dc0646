"""The steps of calls that do much more work than their cost in CEL units.

Kubernetes charges 1 for comparing lists of lists, for appending to a list, and for
other work that Go does without copying. A value that a selector references twice is one
value in memory, but a comparison visits it twice: comparing thirty nested lists, each
of which contains the next one twice, would take hours. So the steps of these calls are
counted before the calls run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler.cel.runtime.format_clauses import PRECISION_MAX
from scheduler.cel.runtime.regexes import search_steps
from scheduler.cel.runtime.values import MapValue, Optional

Steps = Callable[[list[Any]], int]

# Characters that are copied or compared in the time of one step.
_CHARACTERS = 16


def _visited(value: Any, known: dict[int, int]) -> int:
    """Return the number of values that a walk over a value visits.

    A value that occurs several times is counted each time.
    """
    kind = type(value)
    if kind is str or kind is bytes:
        return 1 + len(value) // _CHARACTERS
    if kind is not list and kind is not MapValue and kind is not Optional:
        return 1
    found = known.get(id(value))
    if found is None:
        inner = _inner(value)
        found = known[id(value)] = 1 + sum([_visited(each, known) for each in inner])
    return found


def _inner(value: Any) -> list[Any]:
    if type(value) is list:
        return value
    if type(value) is Optional:
        return [value.value]
    return [each for _, each in value.entries.values()]


def _comparing(args: list[Any]) -> int:
    known: dict[int, int] = {}
    return min(_visited(args[0], known), _visited(args[1], known))


def _walking(args: list[Any]) -> int:
    return _visited(args[0], {})


def _looking_up(args: list[Any]) -> int:
    return 1 if type(args[1]) is MapValue else _visited(args[1], {})


def _comparing_each(args: list[Any]) -> int:
    known: dict[int, int] = {}
    left, right = args
    return 2 * _visited(left, known) * _visited(right, known)


def _appending(args: list[Any]) -> int:
    left, right = args
    if type(left) is list and type(right) is list:
        return len(left) + len(right)
    return 1 + (_characters(left) + _characters(right)) // _CHARACTERS


def _replacing(args: list[Any]) -> int:
    text, old, new = map(_characters, args[:3])
    return 1 + (text + (text // max(old, 1) + 1) * new) // _CHARACTERS


def _joining(args: list[Any]) -> int:
    parts = args[0] if type(args[0]) is list else []
    written = sum(map(_characters, parts)) + len(parts) * _characters(args[-1])
    return 1 + len(parts) + written // _CHARACTERS


def _sorting(args: list[Any]) -> int:
    known: dict[int, int] = {}
    visited = _visited(args[-1], known)
    return visited * visited.bit_length()


def _comparing_all(args: list[Any]) -> int:
    visited = _visited(args[0], {})
    return visited * visited


def _counting_up(args: list[Any]) -> int:
    return max(args[0], 0) if type(args[0]) is int else 1


def _writing(args: list[Any]) -> int:
    text, arguments = args
    # The maximum number of digits of each clause.
    clauses = _characters(text) // 2
    return 1 + _visited(text, {}) + _visited(arguments, {}) + clauses * PRECISION_MAX


def _reading(args: list[Any]) -> int:
    return 1 + sum(map(_characters, args))


def _searching(args: list[Any]) -> int:
    return search_steps(args[0], args[1])


def _characters(value: Any) -> int:
    return len(value) if type(value) is str or type(value) is bytes else 0


_BY_FUNCTION: dict[str, Steps] = {
    **dict.fromkeys(("_==_", "_!=_"), _comparing),
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _walking
    ),
    **dict.fromkeys(
        ("sets.contains", "sets.intersects", "sets.equivalent"), _comparing_each
    ),
    **dict.fromkeys(("matches", "find", "findAll"), _searching),
    "sort": _sorting,
    "@sortByAssociatedKeys": _sorting,
    "distinct": _comparing_all,
    **dict.fromkeys(("flatten", "slice", "reverse", "unwrapOpt"), _walking),
    "optional.unwrap": _walking,
    "lists.range": _counting_up,
    "format": _writing,
    **dict.fromkeys(
        ("url", "isURL", "ip", "isIP", "ip.isCanonical", "cidr", "isCIDR"), _reading
    ),
    **dict.fromkeys(("validate", "strings.quote", "getQuery"), _reading),
    "@in": _looking_up,
    "_+_": _appending,
    "replace": _replacing,
    "join": _joining,
}


def call_steps(function: str) -> Steps | None:
    """Return the function that counts the steps of a call, or None if they are few."""
    return _BY_FUNCTION.get(function)
