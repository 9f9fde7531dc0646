"""What a call takes in steps of the machine, where its cost in CEL units says too little about that.

Kubernetes charges 1 for comparing lists of lists, for appending to a list, and for much else that Go does without copying. What a
selector names twice is one value to Go and to Python, yet a comparison visits it twice: thirty lists of two, each made of the one before,
would be compared in hours. So these calls are counted before they are made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler.cel.runtime.regexes import search_steps
from scheduler.cel.runtime.values import MapValue

Steps = Callable[[list[Any]], int]

# Characters that are copied or compared in the time of one step.
_CHARACTERS = 16


def _visited(value: Any, known: dict[int, int]) -> int:
    """How many values a walk over a value visits, each as often as it is reached."""
    kind = type(value)
    if kind is not list and kind is not MapValue:
        return 1 + len(value) // _CHARACTERS if kind is str or kind is bytes else 1
    found = known.get(id(value))
    if found is None:
        inner = value if kind is list else [each for _, each in value.entries.values()]
        found = known[id(value)] = 1 + sum([_visited(each, known) for each in inner])
    return found


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
    return 1 + len(parts) + (sum(map(_characters, parts)) + len(parts) * _characters(args[-1])) // _CHARACTERS


def _searching(args: list[Any]) -> int:
    return search_steps(args[0], args[1])


def _characters(value: Any) -> int:
    return len(value) if type(value) is str or type(value) is bytes else 0


_BY_FUNCTION: dict[str, Steps] = {
    **dict.fromkeys(("_==_", "_!=_"), _comparing),
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _walking),
    **dict.fromkeys(("sets.contains", "sets.intersects", "sets.equivalent"), _comparing_each),
    **dict.fromkeys(("matches", "find", "findAll"), _searching),
    "@in": _looking_up,
    "_+_": _appending,
    "replace": _replacing,
    "join": _joining,
}


def call_steps(function: str) -> Steps | None:
    """Give the function that counts the steps of a call before it is made, or None if there are few for all arguments."""
    return _BY_FUNCTION.get(function)
