"""Paths such as `device.attributes["d"].?model.size`, whose steps may have no value.

After the first `?`, a step without a value ends the path with an empty optional. The
end of the path wraps the value. A path whose root is an optional behaves in the same
way.
"""

from __future__ import annotations

from typing import Any

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime.instructions import (
    OR_ELSE,
    PATH_END,
    PATH_FIELD,
    PATH_HAS,
    PATH_INDEX,
    PATH_START,
    REREAD,
)
from scheduler.cel.runtime.operators import index
from scheduler.cel.runtime.optionals import content_of, reread
from scheduler.cel.runtime.values import (
    ABSENT,
    NONE,
    MapValue,
    Optional,
    Uint,
    type_name,
)

# Types of values that Kubernetes accepts as an index.
_KEYS = frozenset({str, int, Uint, bool, float})


class PathValue:
    """The value of a path up to a step after a `?`."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def field_if_present(value: Any, name: str) -> Any:
    """Return `value.name`, ABSENT, or an error value for a list."""
    if type(value) is MapValue:
        return value.find_present(name)
    if type(value) is list:
        return EvalError("unsupported index type 'string' in list")
    return ABSENT


def index_if_present(value: Any, key: Any) -> Any:
    """Return `value[key]`, ABSENT, or an error value for a key that no value can have."""
    if type(key) not in _KEYS:
        return EvalError(f"a {type_name(key)} cannot be an index")
    if type(value) is MapValue:
        return value.find_present(key)
    if type(value) is not list:
        return ABSENT
    found = index(value, key)
    outside = isinstance(found, EvalError) and found.reason.startswith("index out of")
    return ABSENT if outside else found


def field(value: Any, name: str) -> Any:
    if type(value) is MapValue:
        found = value.entries.get(("s", name))
        if found is not None:
            return found[1]
        if value.default is not None:
            return value.default
        return EvalError(f"no such key: {name}")
    return EvalError(f"no such key: {name}; {type_name(value)} has no fields")


def has_field(value: Any, name: str) -> bool | EvalError:
    if type(value) is list:
        return EvalError("no such overload: a list has no fields")
    return type(value) is MapValue and (
        value.default is not None or ("s", name) in value.entries
    )


def _has_on_path(value: Any, name: str, in_branch: bool) -> tuple[Any, int]:
    """Return whether a value on a path has a field, and the cost of the test."""
    if type(value) is not PathValue:
        return has_field(value, name), 1
    if in_branch:
        # In this case Kubernetes returns an optional instead of a bool.
        return EvalError("has() of an optional path cannot be a branch of ? :"), 0
    found = field_if_present(value.value, name)
    if type(found) is EvalError:
        return found, 0
    present = found is not ABSENT
    return present, int(present)


def _find(value: Any, key: Any, *, is_field: bool, optional: bool) -> Any:
    """Take one step of a path that may be optional.

    Args:
        value: the value before the step, which is a PathValue behind a `?`.
        key: name of the field, or the index.
        is_field: whether the step is a field.
        optional: whether the step has a `?`.

    Returns:
        The value or PathValue behind the step, an error value, or ABSENT.

    """
    is_found = type(value) is PathValue
    if not optional and not is_found:
        return field(value, key) if is_field else index(value, key)
    inner = value.value if is_found else value
    find = field_if_present if is_field else index_if_present
    found = find(inner, key)
    if found is ABSENT or type(found) is EvalError:
        return found
    return PathValue(found)


def take_path_step(
    operation: int, a: Any, b: Any, at: int, stack: list[Any]
) -> tuple[int, int]:
    """Run one of the PATH_OPERATIONS on the stack.

    Returns:
        The instruction to continue at, and the cost of this one.

    """
    value = stack[-1]
    if operation in (PATH_FIELD, PATH_INDEX):
        return _step(operation, a, b, at, stack)
    if operation == PATH_START:
        stack[-1] = _start(value)
        ends = stack[-1] is NONE or type(stack[-1]) is EvalError
        return (b if ends else at), 0
    if operation == PATH_HAS:
        stack[-1], cost = _has_on_path(value, *a)
        return at, cost
    if operation == PATH_END:
        if type(value) is PathValue:
            stack[-1] = Optional(value.value)
        return at, 0
    if operation == REREAD:
        stack[-1] = reread(value)
        return at, 0
    if operation == OR_ELSE:
        return _or_else(a, b, at, stack), 0
    # WRAP
    if type(value) is not EvalError:
        stack[-1] = Optional(value)
    return at, 1


def _start(value: Any) -> Any:
    if type(value) is not Optional or value is NONE:
        return value
    content = content_of(value)
    return content if type(content) is EvalError else PathValue(content)


def _step(operation: int, a: Any, b: Any, at: int, stack: list[Any]) -> tuple[int, int]:
    is_field = operation == PATH_FIELD
    key, optional = a if is_field else (stack.pop(), a)
    found = key
    if type(key) is not EvalError:
        found = _find(stack[-1], key, is_field=is_field, optional=optional)
    stack[-1] = NONE if found is ABSENT else found
    if found is ABSENT or type(found) is EvalError:
        return b, 0
    return at, 1


def _or_else(takes_content: bool, end: int, at: int, stack: list[Any]) -> int:
    value = stack[-1]
    if value is NONE:
        stack.pop()
        return at
    if takes_content and type(value) is Optional:
        stack[-1] = value.value
    return end
