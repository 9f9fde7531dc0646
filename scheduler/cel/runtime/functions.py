"""Every function and operator by its CEL name.

The checker guarantees the number of arguments of a call. The type of an attribute is
unknown to the checker, so every function checks the types of its arguments and returns
an error value. No function raises an exception because of a user's text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler.cel.runtime import (
    conversions,
    format_texts,
    formats,
    kubernetes_functions,
    list_functions,
    networks,
    operators,
    optionals,
    text_functions,
    time_parts,
    urls,
)
from scheduler.cel.runtime.values import MapValue, TypeValue, no_overload, type_name

Function = Callable[..., Any]


def _size(value: Any) -> Any:
    """Return the number of characters, bytes, elements or entries."""
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
    **optionals.IMPLEMENTATIONS,
    **networks.IMPLEMENTATIONS,
    **urls.IMPLEMENTATIONS,
    **formats.IMPLEMENTATIONS,
    **format_texts.IMPLEMENTATIONS,
    **time_parts.IMPLEMENTATIONS,
}
_BY_OVERLOAD: dict[str, Function] = {**list_functions.SUMS, **networks.BY_OVERLOAD}


def implementation(name: str, overloads: tuple[str, ...]) -> Function:
    """Return the implementation of a function or operator.

    Args:
        name: its CEL name, such as `_+_` or `sets.contains`; the checker accepts no other.
        overloads: ids of the declarations that fit the arguments.

    """
    found = _BY_OVERLOAD.get(overloads[0]) if len(overloads) == 1 else None
    return found or _IMPLEMENTATIONS[name]
