"""The stack machine that executes a compiled selector.

Errors are values here, as in CEL: `||` and `&&` may absorb an error, and every other
operation propagates it. Nothing recurses, regardless of the depth of the selector.
Every instruction that can repeat checks the cost, the steps and the clock. The machine
counts steps per round of a loop and per call instead of per instruction. The count is
never below the actual work.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from scheduler.cel.errors import Aborted, EvalError
from scheduler.cel.limits import EVALUATION_SECONDS_MAX, STEPS_MIN, STEPS_PER_UNIT
from scheduler.cel.runtime.formats import NamedFormat
from scheduler.cel.runtime.instructions import (
    ADD_GUARD,
    BIND,
    BOUND,
    CALL,
    CALL_NOTHING,
    CONST,
    COST_MARK,
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
    LOOP_NEXT_PAIR,
    LOOP_PAIRS,
    LOOP_STEP,
    LOOP_WHEN,
    MAP,
    MEMBER,
    OPTIONAL_MAP,
    PATH_OPERATIONS,
    RETURN,
    TERNARY,
    VAR,
    Program,
)
from scheduler.cel.runtime.loops import (
    Loop,
    elements,
    end_result,
    first_result,
    next_pair,
    next_round,
    pairs,
    step,
)
from scheduler.cel.runtime.operators import contained, index
from scheduler.cel.runtime.optionals import (
    list_without_absent,
    map_without_absent,
)
from scheduler.cel.runtime.paths import field, has_field, take_path_step
from scheduler.cel.runtime.values import (
    NONE,
    MapValue,
    Optional,
    make_map,
    no_bool,
    no_overload,
    type_name,
)
from scheduler.kubernetes.semver import SemanticVersion

# The number of loop rounds between two reads of the clock.
_ROUNDS_PER_CHECK = 256


class EvaluationResult(NamedTuple):
    """The outcome of an evaluation.

    Attributes:
        result: the value, which may be an error value.
        cost: CEL cost units spent.
        steps: steps of this machine, which bound the time that it took.

    """

    result: Any
    cost: int
    steps: int


class _Unset:
    """A binding that was not used yet; `start` is the code that computes it."""

    __slots__ = ("start",)

    def __init__(self, start: int) -> None:
        self.start = start


class _Priced:
    """The variable of `optMap` before its first use.

    Kubernetes evaluates the optional again on first use. Here only the cost of that is
    added.
    """

    __slots__ = ("cost", "value")

    def __init__(self, value: Any, cost: int) -> None:
        self.value = value
        self.cost = cost


def _first_error(values: list[Any]) -> EvalError | None:
    for value in values:
        if type(value) is EvalError:
            return value
    return None


# One loop with one branch per operation, ordered by frequency.
def run(program: Program, device: MapValue, cost_max: int) -> EvaluationResult:  # noqa: PLR0915
    """Evaluate a program for one device.

    Args:
        program: a compiled selector.
        device: the value of `device`.
        cost_max: CEL cost units allowed.

    Raises:
        Aborted: the evaluation was stopped.

    """
    code = program.code
    slots: list[Any] = [device] + [None] * (program.slots - 1)
    stack: list[Any] = []
    loops: list[Loop] = []
    returns: list[tuple[int, int]] = []
    marks: list[int] = []
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
                stack[-1] = field(value, a)
        elif operation == CALL:
            args = stack[-b:]
            del stack[-b:]
            function, call_cost, call_steps = a
            result = _first_error(args)
            if result is None and call_steps is not None:
                steps += call_steps(args)
                if steps > steps_max:
                    raise Aborted(_too_long(steps_max), cost + steps_max)
            try:
                if result is None:
                    result = function(*args)
                cost += 1 if call_cost is None else call_cost(args, result)
            except Aborted as stopped:
                raise Aborted(str(stopped), cost + steps) from None
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
            return EvaluationResult(stack[-1], cost, steps)
        elif operation == MEMBER:
            value = stack[-1]
            if (
                type(value) is SemanticVersion
                or type(value) is bytes
                or type(value) is NamedFormat
            ):
                raise Aborted(
                    f"Kubernetes cannot look a {type_name(value)} up in a list of constants",
                    cost + steps,
                )
            if type(value) is not EvalError:
                steps += len(a)
                stack[-1] = contained(value, a)
        elif operation in (LOOP_NEXT, LOOP_NEXT_PAIR):
            rounds += 1
            steps += b - at
            if steps > steps_max:
                raise Aborted(_too_long(steps_max), cost + steps_max)
            if rounds % _ROUNDS_PER_CHECK == 1:
                now = time.monotonic()
                deadline = deadline or now + EVALUATION_SECONDS_MAX
                if now > deadline:
                    raise Aborted(
                        f"the evaluation took longer than {EVALUATION_SECONDS_MAX} s",
                        cost + steps,
                    )
            advance = next_round if operation == LOOP_NEXT else next_pair
            at, spent = advance(loops[-1], stack[-1], slots, a, (at, b))
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
                stack[-1] = has_field(value, a)
        elif operation in (LIST, MAP):
            values = stack[len(stack) - a :]
            del stack[len(stack) - a :]
            cost += fixed
            error = _first_error(values)
            if error is not None:
                stack.append(error)
            elif operation == LIST:
                stack.append(list_without_absent(values, b) if b else values)
            else:
                stack.append(map_without_absent(values, b) if b else make_map(values))
        elif operation == BIND:
            slots[a] = _Unset(at)
            at = b
        elif operation == BOUND:
            cost += fixed
            value = slots[a]
            if type(value) is _Unset:
                returns.append((at, a))
                at = value.start
            elif type(value) is _Priced:
                cost += value.cost
                slots[a] = value.value
                stack.append(value.value)
            else:
                stack.append(value)
        elif operation == RETURN:
            at, slot = returns.pop()
            slots[slot] = stack[-1]
        elif operation in PATH_OPERATIONS:
            at, spent = take_path_step(operation, a, b, at, stack)
            cost += fixed + spent
        elif operation == COST_MARK:
            marks.append(cost)
        elif operation == OPTIONAL_MAP:
            value = stack.pop()
            spent = cost - marks.pop()
            if type(value) is Optional and value is not NONE:
                cost += 1
                slots[a] = _Priced(value.value, spent + 1)
            else:
                at = b
                if value is NONE:
                    cost += 2
                elif type(value) is not EvalError:
                    value = no_overload(value)
                stack.append(value)
        elif operation == LOOP_PAIRS:
            entries = pairs(stack[-1])
            if isinstance(entries, EvalError):
                stack[-1] = entries
                at = b
            else:
                loops.append(Loop(a, entries))
                stack[-1] = first_result(a)
        elif operation == CALL_NOTHING:
            cost += 1
            stack.append(a[0]())
        elif operation == ADD_GUARD:
            left = stack[-2]
            is_empty = type(left) is list and not left
            if is_empty and any(left is slot for slot in slots):
                raise Aborted(
                    "Kubernetes would change a variable that is an empty list by adding to it",
                    cost + steps,
                )


def _over(cost: int, cost_max: int) -> str:
    return (
        f"CostExceeded: the evaluation cost at least {cost} units, {cost_max} are allowed; "
        "shorten the loops and lists of the selector"
    )


def _too_long(steps_max: int) -> str:
    return (
        f"CostExceeded: the evaluation took more than {steps_max} steps; "
        "simplify the body of its loops"
    )
