"""Values while a selector is evaluated, and what makes two of them equal or ordered.

Python's own `bool`, `int`, `float`, `str`, `bytes`, `list` and `None` stand for CEL's; the rest is here. Python is laxer than
CEL (`True == 1`), so nothing compares CEL values with Python's operators except the functions of this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime.amounts import Amount
from scheduler.kubernetes.semver import Version

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
UINT64_MAX = 2**64 - 1


class Uint(int):
    """A CEL `uint`; results of arithmetic on it are plain ints and must be wrapped again."""

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


class MapValue:
    """A CEL map.

    A whole number finds a key of either integer type, a double also one that equals it; `true` and `1` are two keys.

    Attributes:
        entries: from the normal form of a key to the key as written and its value.
        default: what an unknown key gives instead of an error, or None. The device's domains have an empty map.

    """

    __slots__ = ("default", "entries")

    def __init__(self, entries: dict[Any, tuple[Any, Any]], default: MapValue | None = None) -> None:
        self.entries = entries
        self.default = default

    def _entry(self, key: Any) -> tuple[Any, Any] | None:
        found = self.entries.get(key_form(key))
        if found is None and type(key) is float and math.isfinite(key) and key == int(key):
            return self.entries.get(("n", int(key)))
        return found

    def find(self, key: Any) -> Any:
        """The value under `key`, or an error value naming the key."""
        found = self._entry(key)
        if found is not None:
            return found[1]
        return self.default if self.default is not None else EvalError(f"no such key: {key}")

    def __contains__(self, key: Any) -> bool:
        return self._entry(key) is not None


def string_map(values: dict[str, Any], default: MapValue | None = None) -> MapValue:
    """A map with string keys."""
    return MapValue({("s", name): (name, value) for name, value in values.items()}, default)


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


def key_form(key: Any) -> tuple[str, Any] | None:
    """One form for all keys that CEL takes for the same, or None if it cannot be a key."""
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
    """Whether `value` is an int, uint or double."""
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
    Amount: "kubernetes.Quantity",
    Version: "kubernetes.Semver",
}


def type_name(value: Any) -> str:
    """The CEL name of the type of `value`."""
    return _NAMES[type(value)]


def no_bool(value: Any) -> EvalError:
    """The error value for a value that must be a bool; an error value stays what it is."""
    return value if type(value) is EvalError else EvalError(f"no such overload: {type_name(value)} is no bool")


def no_overload(*args: Any) -> EvalError:
    """The error value for a call that does not exist for these values."""
    return EvalError(f"no such overload for ({', '.join(map(type_name, args))})")


def _comparable(a: Any, b: Any) -> tuple[Any, Any]:
    """Two numbers as Kubernetes compares them: beside a double, a whole number is rounded to a double first."""
    if type(a) is float or type(b) is float:
        return float(a), float(b)
    return a, b


def equal(a: Any, b: Any) -> bool | EvalError:
    """Compare as CEL does: by the rules of the left value's type, never converting.

    Returns:
        Whether they are equal, or an error value where Kubernetes has one: a quantity or version against anything else, and
        anything against the result of `add` or `sub`.

    """
    if a is None or b is None:
        return a is b
    kind, other = type(a), type(b)
    if is_number(a):
        if not is_number(b):
            return False
        a, b = _comparable(a, b)
        return bool(a == b)
    if kind is Amount or kind is Version:
        if other is not kind or (kind is Amount and b.computed):
            return EvalError(f"no such overload: {type_name(a)} == {type_name(b)}")
        return bool(a.nano == b.nano if kind is Amount else a == b)
    if kind is not other:
        return False
    if kind is list:
        # An element that cannot be compared does not make lists differ. That is Kubernetes' own quirk.
        return len(a) == len(b) and all(equal(x, y) is not False for x, y in zip(a, b, strict=True))
    if kind is MapValue:
        return _maps_equal(a, b)
    return bool(a == b)


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
    return EvalError(f"no such overload: {type_name(a)} and {type_name(b)} have no order")
