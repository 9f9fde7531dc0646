"""Which functions a device selector may call, with which arguments.

The table is the environment that Kubernetes 1.35 gives a DRA selector, less what this scheduler does not evaluate; a call that is
not in it is refused when the selector is compiled. Overload ids matter only where costs depend on them; they are those of cel-go.
"""

from __future__ import annotations

from typing import NamedTuple

from scheduler.cel.syntax.static_types import (
    ANY,
    BOOL,
    BYTES,
    DEVICE,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    QUANTITY,
    SEMVER,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    is_param,
    list_of,
    map_of,
    param,
    type_of,
)


class Overload(NamedTuple):
    """One way to call a function.

    Attributes:
        id: name of the declaration.
        member: called as `first.name(rest)`; otherwise as `name(first, rest)`.
        args: argument types, the receiver first.
        result: result type.

    """

    id: str
    member: bool
    args: tuple[Type, ...]
    result: Type

    @property
    def generic(self) -> bool:
        """Whether type parameters occur in it, so that every call needs its own."""
        return self.id in _GENERIC


_A = param("A")
_B = param("B")
_LIST = list_of(_A)
_MAP = map_of(_A, _B)
_STRINGS = list_of(STRING)

# What `device` shows. Anything else on it is a compile error.
DEVICE_FIELDS = {
    "driver": STRING,
    "attributes": map_of(STRING, map_of(STRING, ANY)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
}

VARIABLES = {
    "device": DEVICE,
    **{
        named.kind: type_of(named)
        for named in (BOOL, BYTES, DOUBLE, INT, NULL, STRING, UINT, DURATION, TIMESTAMP, Type("list", (DYN,)), Type("map", (DYN, DYN)))
    },
    "type": type_of(Type("type")),
}

_table: dict[str, list[Overload]] = {}


def _global(name: str, result: Type, *args: Type, overload: str = "") -> None:
    _table.setdefault(name, []).append(Overload(overload or f"{name}_{len(_table.get(name, ()))}", member=False, args=args, result=result))


def _member(name: str, result: Type, *args: Type, overload: str = "") -> None:
    overload = overload or f"{name}_member_{len(_table.get(name, ()))}"
    _table.setdefault(name, []).append(Overload(overload, member=True, args=args, result=result))


def _operators() -> None:
    _global("!_", BOOL, BOOL)
    _global("_==_", BOOL, _A, _A, overload="equals")
    _global("_!=_", BOOL, _A, _A, overload="not_equals")
    _global("_?_:_", _A, BOOL, _A, _A, overload="conditional")
    _global("_[_]", _A, _LIST, INT, overload="index_list")
    _global("_[_]", _B, _MAP, _A, overload="index_map")
    _global("@in", BOOL, _A, _LIST, overload="in_list")
    _global("@in", BOOL, _A, _MAP, overload="in_map")
    # Where the type of an operand is unknown, the first overload that fits decides it, so the order is that of Kubernetes.
    for kind in (DOUBLE, INT):
        _global("-_", kind, kind)
    for operator in ("_*_", "_/_"):
        for kind in (DOUBLE, INT, UINT):
            _global(operator, kind, kind, kind)
    for kind in (INT, UINT):
        _global("_%_", kind, kind, kind)
    _global("_+_", BYTES, BYTES, BYTES, overload="add_bytes")
    _global("_+_", DOUBLE, DOUBLE, DOUBLE)
    _global("_+_", DURATION, DURATION, DURATION)
    _global("_+_", TIMESTAMP, DURATION, TIMESTAMP)
    _global("_+_", TIMESTAMP, TIMESTAMP, DURATION)
    _global("_+_", INT, INT, INT)
    _global("_+_", _LIST, _LIST, _LIST, overload="add_list")
    _global("_+_", STRING, STRING, STRING, overload="add_string")
    _global("_+_", UINT, UINT, UINT)
    _global("_-_", DOUBLE, DOUBLE, DOUBLE)
    _global("_-_", DURATION, DURATION, DURATION)
    _global("_-_", INT, INT, INT)
    _global("_-_", TIMESTAMP, TIMESTAMP, DURATION)
    _global("_-_", DURATION, TIMESTAMP, TIMESTAMP)
    _global("_-_", UINT, UINT, UINT)
    numbers = {INT: (INT, DOUBLE, UINT), UINT: (UINT, DOUBLE, INT), DOUBLE: (DOUBLE, INT, UINT)}
    for operator, word in (("_<_", "less"), ("_<=_", "less_equals"), ("_>_", "greater"), ("_>=_", "greater_equals")):
        _global(operator, BOOL, BOOL, BOOL)
        for left, rights in numbers.items():
            for right in rights:
                _global(operator, BOOL, left, right)
        _global(operator, BOOL, STRING, STRING, overload=f"{word}_string")
        _global(operator, BOOL, BYTES, BYTES, overload=f"{word}_bytes")
        _global(operator, BOOL, TIMESTAMP, TIMESTAMP)
        _global(operator, BOOL, DURATION, DURATION)


def _conversions() -> None:
    for name, result, sources in (
        ("bool", BOOL, (BOOL, STRING)),
        ("bytes", BYTES, (BYTES,)),
        ("double", DOUBLE, (DOUBLE, INT, STRING, UINT)),
        ("duration", DURATION, (DURATION, INT, STRING)),
        ("int", INT, (INT, DOUBLE, DURATION, STRING, TIMESTAMP, UINT)),
        ("string", STRING, (STRING, BOOL, DOUBLE, DURATION, INT, TIMESTAMP, UINT)),
        ("timestamp", TIMESTAMP, (TIMESTAMP, INT, STRING)),
        ("uint", UINT, (UINT, DOUBLE, INT, STRING)),
    ):
        for source in sources:
            _global(name, result, source)
    _global("bytes", BYTES, STRING, overload="string_to_bytes")
    _global("string", STRING, BYTES, overload="bytes_to_string")
    _global("dyn", DYN, _A)
    _global("type", type_of(_A), _A)
    for sized in (BYTES, _LIST, _MAP, STRING):
        _global("size", INT, sized)
        _member("size", INT, sized)


def _strings() -> None:
    _member("contains", BOOL, STRING, STRING, overload="contains_string")
    _member("endsWith", BOOL, STRING, STRING, overload="ends_with_string")
    _member("startsWith", BOOL, STRING, STRING, overload="starts_with_string")
    _member("matches", BOOL, STRING, STRING, overload="matches_string")
    _global("matches", BOOL, STRING, STRING, overload="matches")
    _member("find", STRING, STRING, STRING)
    _member("findAll", _STRINGS, STRING, STRING)
    _member("findAll", _STRINGS, STRING, STRING, INT)
    _member("charAt", STRING, STRING, INT)
    for name in ("indexOf", "lastIndexOf"):
        _member(name, INT, _LIST, _A)
        _member(name, INT, STRING, STRING)
        _member(name, INT, STRING, STRING, INT)
    _member("join", STRING, _STRINGS)
    _member("join", STRING, _STRINGS, STRING)
    _member("replace", STRING, STRING, STRING, STRING)
    _member("replace", STRING, STRING, STRING, STRING, INT)
    _member("split", _STRINGS, STRING, STRING)
    _member("split", _STRINGS, STRING, STRING, INT)
    _member("substring", STRING, STRING, INT)
    _member("substring", STRING, STRING, INT, INT)
    for name in ("lowerAscii", "upperAscii", "trim"):
        _member(name, STRING, STRING)


def _lists() -> None:
    for kind in (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES):
        _member("isSorted", BOOL, list_of(kind))
        _member("max", kind, list_of(kind))
        _member("min", kind, list_of(kind))
    for kind, name in ((INT, "int"), (UINT, "uint"), (DOUBLE, "double"), (DURATION, "duration")):
        _member("sum", kind, list_of(kind), overload=f"list_{name}_sum_{name}")
    for name in ("contains", "equivalent", "intersects"):
        _global(f"sets.{name}", BOOL, _LIST, _LIST)


def _kubernetes() -> None:
    _global("quantity", QUANTITY, STRING)
    _global("isQuantity", BOOL, STRING)
    _global("sign", INT, QUANTITY)
    _member("isInteger", BOOL, QUANTITY)
    _member("asInteger", INT, QUANTITY)
    _member("asApproximateFloat", DOUBLE, QUANTITY)
    for name in ("add", "sub"):
        _member(name, QUANTITY, QUANTITY, QUANTITY)
        _member(name, QUANTITY, QUANTITY, INT)
    for name, result in (("semver", SEMVER), ("isSemver", BOOL)):
        _global(name, result, STRING)
        _global(name, result, STRING, BOOL)
    for name in ("major", "minor", "patch"):
        _member(name, INT, SEMVER)
    for kind in (QUANTITY, SEMVER):
        _member("compareTo", INT, kind, kind)
        _member("isGreaterThan", BOOL, kind, kind)
        _member("isLessThan", BOOL, kind, kind)


for _fill in (_operators, _conversions, _strings, _lists, _kubernetes):
    _fill()


def _has_params(kind: Type) -> bool:
    return is_param(kind) or any(map(_has_params, kind.params))


_GENERIC = frozenset(each.id for overloads in _table.values() for each in overloads if any(map(_has_params, (*each.args, each.result))))

FUNCTIONS: dict[str, tuple[Overload, ...]] = {name: tuple(overloads) for name, overloads in _table.items()}

# Functions that Kubernetes knows and this scheduler does not evaluate. Refused by name, since they are no typos.
UNSUPPORTED = frozenset(
    {
        "url",
        "isURL",
        "getScheme",
        "getHost",
        "getHostname",
        "getPort",
        "getEscapedPath",
        "getQuery",
        "ip",
        "isIP",
        "ip.isCanonical",
        "family",
        "isUnspecified",
        "isLoopback",
        "isLinkLocalMulticast",
        "isLinkLocalUnicast",
        "isGlobalUnicast",
        "cidr",
        "isCIDR",
        "containsIP",
        "containsCIDR",
        "masked",
        "prefixLength",
        "format",
        "format.named",
        "validate",
        "strings.quote",
        "optional.of",
        "optional.ofNonZeroValue",
        "optional.none",
        "hasValue",
        "value",
        "or",
        "orValue",
        "optMap",
        "optFlatMap",
        "transformList",
        "transformMap",
        "transformMapEntry",
        "distinct",
        "flatten",
        "lists.range",
        "reverse",
        "slice",
        "sort",
        "sortBy",
        "first",
        "last",
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getFullYear",
        "getHours",
        "getMilliseconds",
        "getMinutes",
        "getMonth",
        "getSeconds",
        "authorizer",
        "path",
        "group",
        "serviceAccount",
        "check",
        "allowed",
        "reason",
        "errored",
        "error",
        "jsonpatch.escapeKey",
        "includes",
    },
)
