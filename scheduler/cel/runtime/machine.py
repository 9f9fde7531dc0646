"""The stack machine that runs a compiled selector.

Errors are values here, as in CEL: `||` and `&&` may absorb one, everything else passes it on. Nothing recurses, whatever the
selector's depth, and every instruction that can repeat checks the cost and the clock.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from scheduler.cel.errors import Aborted, EvalError
from scheduler.cel.limits import EVALUATION_SECONDS_MAX
from scheduler.cel.runtime.operators import contained, index
from scheduler.cel.runtime.values import MapValue, key_form, type_name
from scheduler.kubernetes.semver import Version

(
    CONST,  # push a
    VAR,  # push slot a
    BOUND,  # push slot a, computing its value on first use
    FIELD,  # value -> value.a; b is what an error value costs here
    HAS,  # value -> whether it has field a
    INDEX,  # value, key -> value[key]
    CALL,  # b arguments -> result; a is (function, cost function or None)
    MEMBER,  # value -> whether it is among the constants a
    LOGIC,  # push a, the result if no term decides
    LOGIC_TERM,  # result, term -> result; a is the deciding bool, then jump to b
    TERNARY,  # condition -> ; jump to a if false, to b with the error if it is no bool
    JUMP,  # jump to a
    LIST,  # a values -> list
    MAP,  # a keys and values -> map
    LOOP,  # range -> result so far; a is the macro; jump to b with the error if nothing can be looped over
    LOOP_NEXT,  # put the next element into slot a, or jump to b
    LOOP_WHEN,  # result, condition -> result; jump to a unless the condition is true
    LOOP_STEP,  # result, value -> result; a is (macro, slot)
    LOOP_END,  # result so far -> result; a is the macro
    BIND,  # slot a is computed by the code that follows, when needed; jump to b
    RETURN,  # end of that code
    END,
) = range(22)

# operation, operand a, operand b, fixed cost
Instruction = tuple[int, Any, Any, int]

# The clock is read once per so many loop rounds.
_ROUNDS_PER_CHECK = 256

_FIRST = {"all": True, "exists": False, "exists_one": 0}

# Fixed costs of a loop round before and after the predicate, and of its result, as the macro's expansion has them.
_ROUND_COST = {"all": 3, "exists": 4, "exists_one": 0, "filter": 0, "map": 0}
_RESULT_COST = {"all": 1, "exists": 1, "exists_one": 2, "filter": 1, "map": 1}
_KEPT_COST = {"exists_one": 2, "filter": 13, "map": 2}


class Program(NamedTuple):
    """A compiled selector; `slots` counts its variables, the device included."""

    code: tuple[Instruction, ...]
    slots: int


class _Unset:
    """A binding that was not used yet; `start` is the code that computes it."""

    __slots__ = ("start",)

    def __init__(self, start: int) -> None:
        self.start = start


def make_map(flat: list[Any]) -> MapValue | EvalError:
    """A map from alternating keys and values."""
    entries: dict[Any, tuple[Any, Any]] = {}
    for key, value in zip(flat[::2], flat[1::2], strict=True):
        form = key_form(key)
        if form is None:
            return EvalError(f"unsupported key type: {type_name(key)}")
        if form in entries and type(entries[form][0]) is not type(key):
            # Kubernetes would keep both and find either; such a literal is a mistake.
            return EvalError(f"repeated key: {key}")
        entries[form] = (key, value)
    return MapValue(entries)


def _field(value: Any, name: str) -> Any:
    if type(value) is MapValue:
        found = value.entries.get(("s", name))
        if found is not None:
            return found[1]
        return value.default if value.default is not None else EvalError(f"no such key: {name}")
    return EvalError(f"no such key: {name}; {type_name(value)} has no fields")


def _has(value: Any, name: str) -> bool | EvalError:
    if type(value) is list:
        return EvalError("no such overload: a list has no fields")
    return type(value) is MapValue and (value.default is not None or ("s", name) in value.entries)


def _no_bool(value: Any) -> EvalError:
    return value if type(value) is EvalError else EvalError(f"no such overload: {type_name(value)} is no bool")


def _first_error(values: list[Any]) -> EvalError | None:
    for value in values:
        if type(value) is EvalError:
            return value
    return None


class _Loop:
    """One running comprehension."""

    __slots__ = ("items", "round_cost", "stop")

    def __init__(self, macro: str, values: list[Any]) -> None:
        self.items = iter(values)
        self.round_cost = _ROUND_COST[macro]
        # The result that ends the loop early, if the macro has one.
        self.stop: Any = {"all": False, "exists": True}.get(macro)


def _elements(value: Any) -> list[Any] | EvalError:
    if type(value) is list:
        return value
    if type(value) is MapValue:
        return [key for key, _ in value.entries.values()]
    return value if type(value) is EvalError else EvalError(f"no such overload: cannot loop over {type_name(value)}")


def _step(macro: str, so_far: Any, value: Any, element: Any) -> tuple[Any, int]:
    """What one round makes of the result so far, and what that costs on top."""
    if macro in ("all", "exists"):
        decides = macro == "exists"
        if value is decides or (type(value) is bool and type(so_far) is bool):
            return value, 0
        return (so_far if type(so_far) is EvalError else _no_bool(value)), 0
    if macro == "map":
        if type(so_far) is EvalError or type(value) is EvalError:
            return (so_far if type(so_far) is EvalError else value), _KEPT_COST["map"]
        so_far.append(value)
        return so_far, _KEPT_COST["map"]
    if value is False:
        return so_far, 0
    if value is not True:
        return _no_bool(value), 0
    if type(so_far) is not EvalError:
        if macro == "exists_one":
            so_far += 1
        else:
            so_far.append(element)
    return so_far, _KEPT_COST[macro]


def run(program: Program, device: MapValue, cost_max: int) -> tuple[Any, int]:  # noqa: PLR0915 - one loop, one branch per operation
    """Evaluate a program for one device.

    Args:
        program: a compiled selector.
        device: what `device` stands for.
        cost_max: CEL cost units allowed.

    Returns:
        The result, which may be an error value, and the cost spent.

    Raises:
        Aborted: the evaluation was stopped.

    """
    code = program.code
    slots: list[Any] = [device] + [None] * (program.slots - 1)
    stack: list[Any] = []
    loops: list[_Loop] = []
    returns: list[tuple[int, int]] = []
    cost = 0
    rounds = 0
    deadline = 0.0
    at = 0
    while True:
        operation, a, b, fixed = code[at]
        at += 1
        if operation == CONST:
            stack.append(a)
        elif operation == VAR:
            cost += fixed
            stack.append(slots[a])
        elif operation == FIELD:
            value = stack[-1]
            if type(value) is EvalError:
                cost += b
            else:
                cost += fixed
                stack[-1] = _field(value, a)
        elif operation == CALL:
            args = stack[-b:]
            del stack[-b:]
            function, call_cost = a
            result = _first_error(args)
            if result is None:
                result = function(*args)
            cost += 1 if call_cost is None else call_cost(args, result)
            if cost > cost_max:
                raise Aborted(_over(cost, cost_max))
            stack.append(result)
        elif operation == INDEX:
            key = stack.pop()
            value = stack[-1]
            if type(value) is EvalError:
                cost += b
            else:
                cost += fixed
                stack[-1] = key if type(key) is EvalError else index(value, key)
        elif operation == LOGIC:
            stack.append(a)
        elif operation == LOGIC_TERM:
            value = stack.pop()
            if value is a:
                stack[-1] = value
                at = b
            elif type(value) is not bool and type(stack[-1]) is not EvalError:
                stack[-1] = _no_bool(value)
        elif operation == END:
            if cost > cost_max:
                raise Aborted(_over(cost, cost_max))
            return stack[-1], cost
        elif operation == MEMBER:
            value = stack[-1]
            if type(value) is Version or type(value) is bytes:
                raise Aborted(f"Kubernetes cannot look a {type_name(value)} up in a list of constants")
            if type(value) is not EvalError:
                stack[-1] = contained(value, a)
        elif operation == LOOP_NEXT:
            rounds += 1
            if rounds % _ROUNDS_PER_CHECK == 1:
                now = time.monotonic()
                deadline = deadline or now + EVALUATION_SECONDS_MAX
                if now > deadline:
                    raise Aborted(f"the evaluation took longer than {EVALUATION_SECONDS_MAX} s")
            at, spent = _next(loops[-1], stack[-1], slots, a, (at, b))
            cost += spent
            if cost > cost_max:
                raise Aborted(_over(cost, cost_max))
        elif operation == LOOP_STEP:
            macro, slot = a
            value = stack.pop()
            stack[-1], extra = _step(macro, stack[-1], value, slots[slot])
            cost += fixed + extra
        elif operation == LOOP_WHEN:
            value = stack.pop()
            if value is not True:
                at = a
                if value is not False:
                    stack[-1] = _no_bool(value)
        elif operation == LOOP:
            values = _elements(stack[-1])
            if isinstance(values, EvalError):
                stack[-1] = values
                at = b
            else:
                loops.append(_Loop(a, values))
                stack[-1] = _FIRST.get(a, [])
        elif operation == LOOP_END:
            loops.pop()
            cost += _RESULT_COST[a]
            if a == "exists_one" and type(stack[-1]) is not EvalError:
                stack[-1] = stack[-1] == 1
        elif operation == JUMP:
            at = a
        elif operation == TERNARY:
            value = stack.pop()
            if value is False:
                at = a
            elif value is not True:
                stack.append(_no_bool(value))
                at = b
        elif operation == HAS:
            value = stack[-1]
            if type(value) is not EvalError:
                cost += fixed
                stack[-1] = _has(value, a)
        elif operation in (LIST, MAP):
            values = stack[len(stack) - a :]
            del stack[len(stack) - a :]
            cost += fixed
            error = _first_error(values)
            if error is not None:
                stack.append(error)
            else:
                stack.append(values if operation == LIST else make_map(values))
        elif operation == BIND:
            slots[a] = _Unset(at)
            at = b
        elif operation == BOUND:
            cost += fixed
            value = slots[a]
            if type(value) is _Unset:
                returns.append((at, a))
                at = value.start
            else:
                stack.append(value)
        else:  # RETURN
            at, slot = returns.pop()
            slots[slot] = stack[-1]


def _next(loop: _Loop, so_far: Any, slots: list[Any], slot: int, targets: tuple[int, int]) -> tuple[int, int]:
    """Advance a loop: which of the targets (body, end) to continue at, and what that costs."""
    body, end = targets
    for element in loop.items:
        if loop.stop is not None and so_far is loop.stop:
            # The condition was evaluated, the step was not taken.
            return end, loop.round_cost - 1
        slots[slot] = element
        return body, loop.round_cost
    return end, 0


def _over(cost: int, cost_max: int) -> str:
    return f"CostExceeded: the evaluation cost {cost} units or more, {cost_max} are allowed"
