"""How a macro such as `all` or `map` loops: its rounds, its result so far, and what each costs.

CEL defines a macro by an expansion into simpler steps. Here a macro is one loop, and only its costs are those of the expansion.
"""

from __future__ import annotations

from typing import Any

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime.values import MapValue, no_bool, type_name

_FIRST = {"all": True, "exists": False, "exists_one": 0}

# Fixed costs of a loop round before and after the predicate, and of its result, as the macro's expansion has them.
_ROUND_COST = {"all": 3, "exists": 4, "exists_one": 0, "filter": 0, "map": 0}
_RESULT_COST = {"all": 1, "exists": 1, "exists_one": 2, "filter": 1, "map": 1}
_KEPT_COST = {"exists_one": 2, "filter": 13, "map": 2}


class Loop:
    """One running comprehension."""

    __slots__ = ("items", "round_cost", "stop")

    def __init__(self, macro: str, values: list[Any]) -> None:
        self.items = iter(values)
        self.round_cost = _ROUND_COST[macro]
        # The result that ends the loop early, if the macro has one.
        self.stop: Any = {"all": False, "exists": True}.get(macro)


def elements(value: Any) -> list[Any] | EvalError:
    """What a loop over `value` visits: the elements of a list, the keys of a map; an error value for everything else."""
    if type(value) is list:
        return value
    if type(value) is MapValue:
        return [key for key, _ in value.entries.values()]
    return value if type(value) is EvalError else EvalError(f"no such overload: cannot loop over {type_name(value)}")


def first_result(macro: str) -> Any:
    """The result of a loop over nothing; of `filter` and `map` a new list, which the rounds extend."""
    return _FIRST.get(macro, [])


def step(macro: str, so_far: Any, value: Any, element: Any) -> tuple[Any, int]:
    """What one round makes of the result so far, and what that costs on top.

    Args:
        macro: the name of the loop.
        so_far: its result before this round; a list is changed in place.
        value: what the condition gave, or for `map` the new element; may be an error value.
        element: the element that this round visits.

    """
    if macro in ("all", "exists"):
        decides = macro == "exists"
        if value is decides or (type(value) is bool and type(so_far) is bool):
            return value, 0
        return (so_far if type(so_far) is EvalError else no_bool(value)), 0
    if macro == "map":
        if type(so_far) is EvalError or type(value) is EvalError:
            return (so_far if type(so_far) is EvalError else value), _KEPT_COST["map"]
        so_far.append(value)
        return so_far, _KEPT_COST["map"]
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


def next_round(loop: Loop, so_far: Any, slots: list[Any], slot: int, targets: tuple[int, int]) -> tuple[int, int]:
    """Advance a loop: put the next element into its slot.

    Returns:
        Which of the targets (body, end) to continue at, and what that costs.

    """
    body, end = targets
    for element in loop.items:
        if loop.stop is not None and so_far is loop.stop:
            # The condition was evaluated, the step was not taken.
            return end, loop.round_cost - 1
        slots[slot] = element
        return body, loop.round_cost
    return end, 0


def end_result(macro: str, so_far: Any) -> tuple[Any, int]:
    """What a loop gives after its last round, and what that costs."""
    if macro == "exists_one" and type(so_far) is not EvalError:
        so_far = so_far == 1
    return so_far, _RESULT_COST[macro]
