"""The stack machine that runs a compiled selector.

Errors are values here, as in CEL: `||` and `&&` may absorb one, everything else passes it on. Nothing recurses, whatever the
selector's depth, and every instruction that can repeat checks the cost, the steps and the clock. Steps are counted by the round of
a loop and by the call, not by the instruction: the count is never lower than what was done, and costs nothing to speak of.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from scheduler.cel.errors import Aborted, EvalError
from scheduler.cel.limits import EVALUATION_SECONDS_MAX, STEPS_MIN, STEPS_PER_UNIT
from scheduler.cel.runtime.instructions import (
    BIND,
    BOUND,
    CALL,
    CONST,
    END,
    FIELD,
    HAS,
    INDEX,
    JUMP,
    LIST,
    LOGIC,
    LOGIC_TERM,
    LOOP,
    LOOP_END,
    LOOP_NEXT,
    LOOP_STEP,
    LOOP_WHEN,
    MAP,
    MEMBER,
    TERNARY,
    VAR,
    Program,
)
from scheduler.cel.runtime.loops import Loop, elements, end_result, first_result, next_round, step
from scheduler.cel.runtime.operators import contained, index
from scheduler.cel.runtime.values import MapValue, make_map, no_bool, type_name
from scheduler.kubernetes.semver import Version

# The clock is read once per so many loop rounds.
_ROUNDS_PER_CHECK = 256


class Outcome(NamedTuple):
    """What an evaluation gave.

    Attributes:
        result: the value, which may be an error value.
        cost: CEL cost units spent.
        steps: of this machine; the time that it took follows from them.

    """

    result: Any
    cost: int
    steps: int


class _Unset:
    """A binding that was not used yet; `start` is the code that computes it."""

    __slots__ = ("start",)

    def __init__(self, start: int) -> None:
        self.start = start


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


def _first_error(values: list[Any]) -> EvalError | None:
    for value in values:
        if type(value) is EvalError:
            return value
    return None


def run(program: Program, device: MapValue, cost_max: int) -> Outcome:  # noqa: PLR0915 - one loop, one branch per operation
    """Evaluate a program for one device.

    Args:
        program: a compiled selector.
        device: what `device` stands for.
        cost_max: CEL cost units allowed.

    Raises:
        Aborted: the evaluation was stopped.

    """
    code = program.code
    slots: list[Any] = [device] + [None] * (program.slots - 1)
    stack: list[Any] = []
    loops: list[Loop] = []
    returns: list[tuple[int, int]] = []
    cost = 0
    steps = len(code)
    steps_max = STEPS_MIN + STEPS_PER_UNIT * cost_max
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
            function, call_cost, call_steps = a
            result = _first_error(args)
            if result is None:
                if call_steps is not None:
                    steps += call_steps(args)
                    if steps > steps_max:
                        raise Aborted(_too_long(steps_max), cost + steps_max)
                result = function(*args)
            cost += 1 if call_cost is None else call_cost(args, result)
            if cost > cost_max:
                raise Aborted(_over(cost, cost_max), cost + steps)
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
                stack[-1] = no_bool(value)
        elif operation == END:
            if cost > cost_max:
                raise Aborted(_over(cost, cost_max), cost + steps)
            return Outcome(stack[-1], cost, steps)
        elif operation == MEMBER:
            value = stack[-1]
            if type(value) is Version or type(value) is bytes:
                raise Aborted(f"Kubernetes cannot look a {type_name(value)} up in a list of constants", cost + steps)
            if type(value) is not EvalError:
                steps += len(a)
                stack[-1] = contained(value, a)
        elif operation == LOOP_NEXT:
            rounds += 1
            steps += b - at
            if steps > steps_max:
                raise Aborted(_too_long(steps_max), cost + steps_max)
            if rounds % _ROUNDS_PER_CHECK == 1:
                now = time.monotonic()
                deadline = deadline or now + EVALUATION_SECONDS_MAX
                if now > deadline:
                    raise Aborted(f"the evaluation took longer than {EVALUATION_SECONDS_MAX} s", cost + steps)
            at, spent = next_round(loops[-1], stack[-1], slots, a, (at, b))
            cost += spent
            if cost > cost_max:
                raise Aborted(_over(cost, cost_max), cost + steps)
        elif operation == LOOP_STEP:
            macro, slot = a
            value = stack.pop()
            stack[-1], extra = step(macro, stack[-1], value, slots[slot])
            cost += fixed + extra
        elif operation == LOOP_WHEN:
            value = stack.pop()
            if value is not True:
                at = a
                if value is not False:
                    stack[-1] = no_bool(value)
        elif operation == LOOP:
            values = elements(stack[-1])
            if isinstance(values, EvalError):
                stack[-1] = values
                at = b
            else:
                loops.append(Loop(a, values))
                stack[-1] = first_result(a)
        elif operation == LOOP_END:
            loops.pop()
            stack[-1], spent = end_result(a, stack[-1])
            cost += spent
        elif operation == JUMP:
            at = a
        elif operation == TERNARY:
            value = stack.pop()
            if value is False:
                at = a
            elif value is not True:
                stack.append(no_bool(value))
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


def _over(cost: int, cost_max: int) -> str:
    return f"CostExceeded: the evaluation cost {cost} units or more, {cost_max} are allowed"


def _too_long(steps_max: int) -> str:
    return f"CostExceeded: the evaluation took more than {steps_max} steps; simplify what is repeated in it"
