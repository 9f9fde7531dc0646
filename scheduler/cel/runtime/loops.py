"""The loops of macros such as `all` or `map`: rounds, intermediate results, and costs.

CEL defines a macro by its expansion into simpler steps. Here a macro is one loop that
has the costs of its expansion.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime.values import (
    MapValue,
    key_form,
    no_bool,
    no_overload,
    type_name,
)

_FIRST = {"all": True, "exists": False, "exists_one": 0}
_MAP_MACROS = frozenset({"transformMap", "transformMapEntry"})
_LIST_MACROS = frozenset({"map", "transformList"})

# Fixed costs of a loop round before and after the predicate, and of its result, as in
# the macro's expansion.
_ROUND_COST = {"all": 3, "exists": 4}
_RESULT_COST = {"exists_one": 2}
_KEPT_COST = {
    "exists_one": 2,
    "filter": 13,
    "map": 2,
    "transformList": 2,
    "transformMap": 3,
    "transformMapEntry": 2,
}


class Loop:
    """One running comprehension."""

    __slots__ = ("items", "round_cost", "stop")

    def __init__(self, macro: str, values: Iterable[Any]) -> None:
        self.items = iter(values)
        self.round_cost = _ROUND_COST.get(macro, 0)
        # The result that ends the loop early, if the macro has one.
        self.stop: Any = {"all": False, "exists": True}.get(macro)


def elements(value: Any) -> list[Any] | EvalError:
    """Return the elements of a list or the keys of a map, else an error value."""
    if type(value) is list:
        return value
    if type(value) is MapValue:
        return [key for key, _ in value.entries.values()]
    return _no_range(value)


def pairs(value: Any) -> list[tuple[Any, Any]] | EvalError:
    """Return the entries of a map or the positions and elements of a list, else an error value."""
    if type(value) is list:
        return list(enumerate(value))
    if type(value) is MapValue:
        return list(value.entries.values())
    return _no_range(value)


def _no_range(value: Any) -> EvalError:
    if type(value) is EvalError:
        return value
    return EvalError(f"no such overload: cannot loop over {type_name(value)}")


def first_result(macro: str) -> Any:
    """Return the initial result of a loop, which the rounds extend."""
    if macro in _MAP_MACROS:
        return MapValue({})
    return _FIRST.get(macro, [])


def step(macro: str, so_far: Any, value: Any, element: Any) -> tuple[Any, int]:
    """Return the result after one round, and the additional cost of the round.

    Args:
        macro: the name of the loop.
        so_far: its result before this round; a list or map is changed in place.
        value: the result of the condition, or the new element or entry; may be an error value.
        element: the element or key that this round visits.

    """
    if macro in ("all", "exists"):
        decides = macro == "exists"
        if value is decides or (type(value) is bool and type(so_far) is bool):
            return value, 0
        return (so_far if type(so_far) is EvalError else no_bool(value)), 0
    if macro in _LIST_MACROS or macro in _MAP_MACROS:
        return _extended(macro, so_far, value, element), _KEPT_COST[macro]
    if value is False:
        return so_far, 0
    if value is not True:
        return no_bool(value), 0
    if type(so_far) is not EvalError:
        if macro == "exists_one":
            so_far += 1
        else:
            so_far.append(element)
    return so_far, _KEPT_COST[macro]


def _extended(macro: str, so_far: Any, value: Any, element: Any) -> Any:
    if type(so_far) is EvalError:
        return so_far
    if type(value) is EvalError:
        return value
    if macro in _LIST_MACROS:
        so_far.append(value)
        return so_far
    if macro == "transformMap":
        return _inserted(so_far, element, value)
    if type(value) is not MapValue:
        return no_overload(so_far, value)
    for key, content in value.entries.values():
        so_far = _inserted(so_far, key, content)
        if type(so_far) is EvalError:
            return so_far
    return so_far


def _inserted(so_far: MapValue, key: Any, value: Any) -> MapValue | EvalError:
    if key in so_far:
        return EvalError(f"insert failed: key {key} already exists")
    so_far.entries[key_form(key)] = (key, value)
    return so_far


def next_round(
    loop: Loop, so_far: Any, slots: list[Any], slot: int, targets: tuple[int, int]
) -> tuple[int, int]:
    """Put the next element of a loop into its slot.

    Returns:
        The target to continue at, which is the body or the end, and the cost of the round.

    """
    body, end = targets
    for element in loop.items:
        if loop.stop is not None and so_far is loop.stop:
            # The condition was evaluated, but the step was not.
            return end, loop.round_cost - 1
        slots[slot] = element
        return body, loop.round_cost
    return end, 0


def next_pair(
    loop: Loop,
    so_far: Any,
    slots: list[Any],
    pair: tuple[int, int],
    targets: tuple[int, int],
) -> tuple[int, int]:
    """Put the next key and value of a loop into its two slots, like `next_round`."""
    first, second = pair
    target, cost = next_round(loop, so_far, slots, first, targets)
    if target == targets[0]:
        slots[first], slots[second] = slots[first]
    return target, cost


def end_result(macro: str, so_far: Any) -> tuple[Any, int]:
    """Return the result of a loop after its last round, and the cost of computing it."""
    if macro == "exists_one" and type(so_far) is not EvalError:
        so_far = so_far == 1
    return so_far, _RESULT_COST.get(macro, 1)
