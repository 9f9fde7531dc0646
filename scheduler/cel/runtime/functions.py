"""Every function and operator by its CEL name.

The checker guarantees that a function gets the right number of arguments; their types may still be wrong wherever an attribute is
involved, so every function checks them and returns an error value. No function raises for what a user wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler.cel.runtime import conversions, kubernetes_functions, list_functions, operators, text_functions
from scheduler.cel.runtime.values import MapValue, TypeValue, no_overload, type_name

Function = Callable[..., Any]


def _size(value: Any) -> Any:
    """Characters, bytes, elements or entries."""
    if type(value) is MapValue:
        return len(value.entries)
    return len(value) if type(value) in (str, bytes, list) else no_overload(value)


def _type(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


_IMPLEMENTATIONS: dict[str, Function] = {
    "dyn": lambda value: value,
    "size": _size,
    "type": _type,
    **operators.IMPLEMENTATIONS,
    **conversions.IMPLEMENTATIONS,
    **text_functions.IMPLEMENTATIONS,
    **list_functions.IMPLEMENTATIONS,
    **kubernetes_functions.IMPLEMENTATIONS,
}


def implementation(name: str, overloads: tuple[str, ...]) -> Function:
    """Give the implementation of a function or operator.

    Args:
        name: its CEL name, such as `_+_` or `sets.contains`; the checker accepts no other.
        overloads: ids of the declarations that fit the arguments.

    """
    # The sum of an empty list depends on the type it has been declared with.
    by_overload = list_functions.SUMS.get(overloads[0]) if len(overloads) == 1 else None
    return by_overload or _IMPLEMENTATIONS[name]
