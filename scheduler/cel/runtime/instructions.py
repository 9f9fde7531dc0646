"""The instructions of compiled selectors, which the stack machine executes.

The comment after an operation shows the top of the stack before and after it. `a` and
`b` are its operands.
"""

from __future__ import annotations

from typing import Any, NamedTuple

(
    CONST,  # push a
    VAR,  # push slot a
    BOUND,  # push slot a, computing its value on first use
    FIELD,  # value -> value.a; b is the cost if the value is an error
    HAS,  # value -> true if it has field a, else false
    INDEX,  # value, key -> value[key]
    CALL,  # b arguments -> result; a is (function, cost function, steps function)
    MEMBER,  # value -> true if it is among the constants a, else false
    LOGIC,  # push a, the result if no term decides
    LOGIC_TERM,  # result, term -> result; a is the deciding bool, then jump to b
    # condition -> ; jump to a if false, to b with the error if it is not a bool
    TERNARY,
    JUMP,  # jump to a
    LIST,  # a values -> list; b is the set of optional positions
    MAP,  # a keys and values -> map; b is the set of optional entries
    LOOP,  # range -> initial result; a is the macro; on an error jump to b with it
    LOOP_NEXT,  # put the next element into slot a, or jump to b
    LOOP_WHEN,  # result, condition -> result; jump to a unless the condition is true
    LOOP_STEP,  # result, value -> result; a is (macro, slot)
    LOOP_END,  # intermediate result -> result; a is the macro
    BIND,  # slot a is computed on first use by the code that follows; jump to b
    RETURN,  # end of the code of a binding
    END,
    LOOP_PAIRS,  # like LOOP for two variables
    LOOP_NEXT_PAIR,  # put the next key and value into the slots a, or jump to b
    PATH_START,  # value -> value, found if it is an optional; jump to b if it is empty
    PATH_FIELD,  # found -> found.name; a is (name, optional); jump to b if there is no value
    PATH_HAS,  # found -> true if it has a field; a is (name, is a branch of `? :`)
    PATH_INDEX,  # found, key -> found[key]; a is whether it is optional; else as PATH_FIELD
    PATH_END,  # found -> optional
    REREAD,  # value -> value as it is read from a variable or a branch of `? :`
    # optional -> optional, or its content if a; jump to b. An empty one is popped.
    OR_ELSE,
    COST_MARK,  # save the current cost
    # optional -> ; store its content in slot a, or jump to b with the empty optional
    OPTIONAL_MAP,
    WRAP,  # value -> optional
    CALL_NOTHING,  # push the result of a function without arguments; a is as for CALL
    ADD_GUARD,  # stop if the left operand is the empty list of a variable
) = range(36)

# Operations that `paths.py` executes.
PATH_OPERATIONS = frozenset(
    {
        PATH_START,
        PATH_FIELD,
        PATH_HAS,
        PATH_INDEX,
        PATH_END,
        REREAD,
        OR_ELSE,
        WRAP,
    }
)

# operation, operand a, operand b, fixed cost
Instruction = tuple[int, Any, Any, int]


class Program(NamedTuple):
    """A compiled selector.

    Attributes:
        code: the instructions.
        slots: the number of variables, including the device.
        pattern_size: the number of instructions of its constant patterns.

    """

    code: tuple[Instruction, ...]
    slots: int
    pattern_size: int = 0
