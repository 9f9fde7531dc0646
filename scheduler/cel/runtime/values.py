"""Values during the evaluation of a selector, and their equality and order.

Python's `bool`, `int`, `float`, `str`, `bytes`, `list` and `None` represent the CEL
types of the same kind. The other types are defined here. Python compares less strictly
than CEL (`True == 1`), so only the functions of this module compare CEL values with
Python's operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime.amounts import CelQuantity
from scheduler.kubernetes.semver import SemanticVersion

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
UINT64_MAX = 2**64 - 1


class Uint(int):
    """A CEL `uint`. Results of arithmetic on it are plain ints and must be wrapped again."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Duration:
    """A span of time in nanoseconds."""

    nanos: int


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A moment, in nanoseconds since 1970-01-01T00:00:00Z."""

    nanos: int


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value; `name` is the CEL name without element types."""

    name: str


class Opaque:
    """A value of a type that Kubernetes adds, which has no fields and no order."""

    __slots__ = ()
    cel_type: ClassVar[str]

    def same_as(self, other: Any) -> bool:
        """Compare with a value of the same class."""
        return bool(self == other)


class Optional:
    """A CEL optional: a value, which may be an error value, or nothing."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


ABSENT: Final = object()
NONE: Final = Optional(ABSENT)


class MapValue:
    """A CEL map.

    A whole number finds a key of either integer type, a double also finds an equal key;
    `true` and `1` are two keys.

    Attributes:
        entries: from the normal form of a key to the key as written and its value.
        default: the value of an unknown key, or None if there is none. An unknown domain of a
            device has an empty map.

    """

    __slots__ = ("default", "entries")

    def __init__(
        self, entries: dict[Any, tuple[Any, Any]], default: MapValue | None = None
    ) -> None:
        self.entries = entries
        self.default = default

    def _entry(self, key: Any) -> tuple[Any, Any] | None:
        found = self.entries.get(key_form(key))
        if (
            found is None
            and type(key) is float
            and math.isfinite(key)
            and key == int(key)
        ):
            return self.entries.get(("n", int(key)))
        return found

    def find(self, key: Any) -> Any:
        """Return the value of `key`, or an error value that contains the key."""
        found = self.find_present(key)
        return EvalError(f"no such key: {key}") if found is ABSENT else found

    def find_present(self, key: Any) -> Any:
        """Return the value of `key`, or ABSENT."""
        found = self._entry(key)
        if found is not None:
            return found[1]
        return ABSENT if self.default is None else self.default

    def __contains__(self, key: Any) -> bool:
        return self._entry(key) is not None


def string_map(values: dict[str, Any], default: MapValue | None = None) -> MapValue:
    """Return a map with string keys."""
    entries = {("s", name): (name, value) for name, value in values.items()}
    return MapValue(entries, default)


def make_map(flat: list[Any]) -> MapValue | EvalError:
    """Return a map made from alternating keys and values."""
    return make_map_of(zip(flat[::2], flat[1::2], strict=True))


def make_map_of(pairs: Iterable[tuple[Any, Any]]) -> MapValue | EvalError:
    """Return a map made from keys with their values; the last value of a key counts."""
    entries: dict[Any, tuple[Any, Any]] = {}
    for key, value in pairs:
        form = key_form(key)
        if form is None:
            return EvalError(f"unsupported key type: {type_name(key)}")
        if form in entries and type(entries[form][0]) is not type(key):
            # Kubernetes would keep both and find either of them. Such a literal is a
            # mistake.
            return EvalError(f"repeated key: {key}")
        entries[form] = (key, value)
    return MapValue(entries)


def key_form(key: Any) -> tuple[str, Any] | None:
    """Return one form for all equal keys in CEL; None for an invalid key."""
    kind = type(key)
    if kind is str:
        return ("s", key)
    if kind is bool:
        return ("b", key)
    if kind is int or kind is Uint:
        return ("n", int(key))
    if kind is float and key == key:  # noqa: PLR0124 - only NaN differs from itself
        return ("d", key)
    return None


def is_number(value: Any) -> bool:
    """Return whether `value` is an int, uint or double."""
    return type(value) in (int, float, Uint)


_NAMES = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    MapValue: "map",
    type(None): "null_type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeValue: "type",
    CelQuantity: "kubernetes.Quantity",
    SemanticVersion: "kubernetes.Semver",
    Optional: "optional_type",
}


def type_name(value: Any) -> str:
    """Return the CEL name of the type of `value`."""
    name = _NAMES.get(type(value))
    return value.cel_type if name is None else name


def no_bool(value: Any) -> EvalError:
    """Return the error value for a value that is not a bool.

    An error value is returned unchanged.
    """
    if type(value) is EvalError:
        return value
    return EvalError(f"no such overload: {type_name(value)} is no bool")


def no_overload(*args: Any) -> EvalError:
    """Return the error value for a call that is not defined for these values."""
    return EvalError(f"no such overload for ({', '.join(map(type_name, args))})")


def _comparable(a: Any, b: Any) -> tuple[Any, Any]:
    """Return two numbers as Kubernetes compares them: both doubles if one is a double."""
    if type(a) is float or type(b) is float:
        return float(a), float(b)
    return a, b


def equal(a: Any, b: Any) -> bool | EvalError:
    """Compare as CEL does: by the rules of the left value's type, without converting.

    Returns:
        Whether they are equal, or an error value where Kubernetes has one: a quantity, version
        or other opaque value against a value of another type, and any quantity against the
        result of `add` or `sub`.

    """
    kind, other = type(a), type(b)
    if kind is str and other is str:
        return bool(a == b)
    if a is None or b is None:
        return a is b
    if is_number(a):
        if not is_number(b):
            return False
        a, b = _comparable(a, b)
        return bool(a == b)
    if kind is CelQuantity or kind is SemanticVersion or issubclass(kind, Opaque):
        return _opaque_equal(a, b)
    if kind is not other:
        return False
    if kind is list:
        # An element that cannot be compared does not make the lists unequal, as in
        # Kubernetes.
        return len(a) == len(b) and all(
            equal(x, y) is not False for x, y in zip(a, b, strict=True)
        )
    if kind is MapValue:
        return _maps_equal(a, b)
    if kind is Optional:
        return _optionals_equal(a, b)
    return bool(a == b)


def _opaque_equal(a: Any, b: Any) -> bool | EvalError:
    kind = type(a)
    if type(b) is not kind or (kind is CelQuantity and b.computed):
        return EvalError(f"no such overload: {type_name(a)} == {type_name(b)}")
    if kind is CelQuantity:
        return bool(a.nano == b.nano)
    return bool(a == b) if kind is SemanticVersion else bool(a.same_as(b))


def _optionals_equal(a: Optional, b: Optional) -> bool | EvalError:
    if a is NONE or b is NONE:
        return a is b
    for content in (a.value, b.value):
        if type(content) is EvalError:
            return content
    return equal(a.value, b.value)


def _maps_equal(a: MapValue, b: MapValue) -> bool:
    if len(a.entries) != len(b.entries):
        return False
    for form, (_, value) in a.entries.items():
        other = b.entries.get(form)
        if other is None or equal(value, other[1]) is False:
            return False
    return True


def compare(a: Any, b: Any) -> int | EvalError:
    """Order two values.

    Returns:
        -1, 0 or 1, or an error value if they have no common order.

    """
    kind, other = type(a), type(b)
    if is_number(a) and is_number(b):
        if a != a or b != b:  # noqa: PLR0124 - only NaN differs from itself
            return EvalError("NaN values cannot be ordered")
        a, b = _comparable(a, b)
        return int(a > b) - int(a < b)
    if kind is other and kind in (str, bytes, bool):
        return int(a > b) - int(a < b)
    if kind is other and kind in (Duration, Timestamp):
        return int(a.nanos > b.nanos) - int(a.nanos < b.nanos)
    return EvalError(
        f"no such overload: {type_name(a)} and {type_name(b)} have no order"
    )
