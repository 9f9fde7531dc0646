"""The instructions that a selector is compiled to and that the stack machine runs.

The comment behind an operation says what it takes from the stack and what it leaves there, and what its operands `a` and `b` are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

(
    CONST,  # push a
    VAR,  # push slot a
    BOUND,  # push slot a, computing its value on first use
    FIELD,  # value -> value.a; b is what an error value costs here
    HAS,  # value -> whether it has field a
    INDEX,  # value, key -> value[key]
    CALL,  # b arguments -> result; a is (function, cost function or None, steps function or None)
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


class Program(NamedTuple):
    """A compiled selector.

    Attributes:
        code: what the machine runs.
        slots: how many variables there are, the device included.
        pattern_size: instructions of its constant patterns.

    """

    code: tuple[Instruction, ...]
    slots: int
    pattern_size: int = 0
