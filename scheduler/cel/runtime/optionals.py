"""Optional values, their functions, and lists and maps with optional parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime.amounts import CelQuantity
from scheduler.cel.runtime.times import NANOS_PER_SECOND, TIMESTAMP_SECONDS_MIN
from scheduler.cel.runtime.values import (
    NONE,
    Duration,
    MapValue,
    Opaque,
    Optional,
    Timestamp,
    TypeValue,
    make_map_of,
    no_overload,
    type_name,
)
from scheduler.kubernetes.semver import SemanticVersion

_FIRST_MOMENT = Timestamp(TIMESTAMP_SECONDS_MIN * NANOS_PER_SECOND)


def content_of(optional: Optional) -> Any:
    """Return the content of a non-empty optional, as a path or variable reads it.

    Kubernetes converts the content to a Go value and back. This conversion loses
    Kubernetes' own types and some lists of them, the default of maps for unknown keys,
    and one level of nested optionals.
    """
    value = optional.value
    while type(value) is Optional:
        value = None if value is NONE else value.value
    kind = type(value)
    if _is_lost(value) or (kind is list and any(map(_is_lost, value[:1] + value[-1:]))):
        return EvalError(
            f"Kubernetes cannot read a {type_name(value)} from a variable or branch that "
            "is optional; call orValue() or value() on the optional itself"
        )
    if kind is MapValue and value.default is not None:
        return MapValue(value.entries)
    return value.name if kind is TypeValue else value


def _is_lost(value: Any) -> bool:
    if type(value) is CelQuantity or type(value) is SemanticVersion:
        return True
    return isinstance(value, Opaque) and value.cel_type != "kubernetes.NamedFormat"


def reread(value: Any) -> Any:
    """Return a value as it is read from a variable or from a branch of `? :`."""
    if type(value) is Optional and value is not NONE:
        return Optional(content_of(value))
    return value


def list_without_absent(values: list[Any], optional: frozenset[int]) -> Any:
    """Return the elements of a list without those that are empty optionals."""
    kept = []
    for position, value in enumerate(values):
        if position not in optional:
            kept.append(value)
        elif type(value) is not Optional:
            return EvalError(
                f"an optional element must be an optional value, not {type_name(value)}"
            )
        elif type(value.value) is EvalError:
            return value.value
        elif value is not NONE:
            kept.append(value.value)
    return kept


def map_without_absent(flat: list[Any], optional: frozenset[int]) -> Any:
    """Return a map without the entries whose values are empty optionals."""
    keys, values = flat[::2], flat[1::2]
    entries: dict[int, tuple[Any, Any]] = {}
    for position, (key, value) in enumerate(zip(keys, values, strict=True)):
        if position not in optional:
            entries[position] = (key, value)
        elif type(value) is not Optional:
            return EvalError(
                f"an optional entry must be an optional value, not {type_name(value)}"
            )
        elif type(value.value) is EvalError:
            return value.value
        elif value is not NONE:
            entries[position] = (key, value.value)
        else:
            # An empty entry also removes an earlier entry with the same key.
            entries = {
                at: each for at, each in entries.items() if not _same_key(each[0], key)
            }
    return make_map_of(entries.values())


def _same_key(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def _of_non_zero(value: Any) -> Optional:
    return NONE if _is_zero(value) else Optional(value)


def _is_zero(value: Any) -> bool:
    if type(value) is MapValue:
        return not value.entries and value.default is None
    if value == _FIRST_MOMENT or value == Duration(0):
        return True
    empty = isinstance(value, bool | int | float | str | bytes | list) and not value
    return value is None or empty


def _value(optional: Any) -> Any:
    if type(optional) is not Optional:
        return no_overload(optional)
    if optional is NONE:
        return EvalError("optional.none() dereference")
    return optional.value


def _has_value(optional: Any) -> Any:
    if type(optional) is not Optional:
        return no_overload(optional)
    return optional is not NONE


def _at_end(position: int) -> Callable[[Any], Any]:
    def end(values: Any) -> Any:
        if type(values) is not list:
            return no_overload(values)
        return Optional(values[position]) if values else NONE

    return end


def _unwrap(values: Any) -> Any:
    if type(values) is not list:
        return no_overload(values)
    for value in values:
        if type(value) is not Optional:
            return EvalError("a value of the list is not optional")
    kept = [value.value for value in values if value is not NONE]
    errors = [value for value in kept if type(value) is EvalError]
    return errors[0] if errors else kept


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "optional.of": Optional,
    "optional.ofNonZeroValue": _of_non_zero,
    "optional.none": lambda: NONE,
    "value": _value,
    "hasValue": _has_value,
    "first": _at_end(0),
    "last": _at_end(-1),
    "optional.unwrap": _unwrap,
    "unwrapOpt": _unwrap,
}
