"""Declarations of the standard library of CEL: operators, conversions, text and time."""

from __future__ import annotations

from scheduler.cel.checking.overloads import Library
from scheduler.cel.syntax.static_types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    list_of,
    map_of,
    param,
    type_of,
)
from scheduler.cel.syntax.tree import INDEX

_A = param("A")
_B = param("B")
_LIST = list_of(_A)
_MAP = map_of(_A, _B)
_ORDERINGS = {
    "_<_": "less",
    "_<=_": "less_equals",
    "_>_": "greater",
    "_>=_": "greater_equals",
}
_NUMBERS = {
    INT: (INT, DOUBLE, UINT),
    UINT: (UINT, DOUBLE, INT),
    DOUBLE: (DOUBLE, INT, UINT),
}
_CONVERSIONS = (
    ("bool", BOOL, (BOOL, STRING)),
    ("bytes", BYTES, (BYTES,)),
    ("double", DOUBLE, (DOUBLE, INT, STRING, UINT)),
    ("duration", DURATION, (DURATION, INT, STRING)),
    ("int", INT, (INT, DOUBLE, DURATION, STRING, TIMESTAMP, UINT)),
    ("string", STRING, (STRING, BOOL, DOUBLE, DURATION, INT, TIMESTAMP, UINT)),
    ("timestamp", TIMESTAMP, (TIMESTAMP, INT, STRING)),
    ("uint", UINT, (UINT, DOUBLE, INT, STRING)),
)
CALENDAR_PARTS = (
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getMonth",
)
CLOCK_PARTS = ("getHours", "getMilliseconds", "getMinutes", "getSeconds")


def declare(library: Library) -> None:
    """Declare the standard library."""
    _operators(library)
    _arithmetic(library)
    _orderings(library)
    _conversions(library)
    _texts(library)
    _times(library)


def _operators(library: Library) -> None:
    library.add("!_", BOOL, BOOL)
    library.add("_==_", BOOL, _A, _A, overload="equals")
    library.add("_!=_", BOOL, _A, _A, overload="not_equals")
    library.add("_?_:_", _A, BOOL, _A, _A, overload="conditional")
    library.add(INDEX, _A, _LIST, INT, overload="index_list")
    library.add(INDEX, _B, _MAP, _A, overload="index_map")
    library.add("@in", BOOL, _A, _LIST, overload="in_list")
    library.add("@in", BOOL, _A, _MAP, overload="in_map")


def _arithmetic(library: Library) -> None:
    for kind in (DOUBLE, INT):
        library.add("-_", kind, kind)
    for operator in ("_*_", "_/_"):
        for kind in (DOUBLE, INT, UINT):
            library.add(operator, kind, kind, kind)
    for kind in (INT, UINT):
        library.add("_%_", kind, kind, kind)
    library.add("_+_", BYTES, BYTES, BYTES, overload="add_bytes")
    library.add("_+_", DOUBLE, DOUBLE, DOUBLE)
    library.add("_+_", DURATION, DURATION, DURATION)
    library.add("_+_", TIMESTAMP, DURATION, TIMESTAMP)
    library.add("_+_", TIMESTAMP, TIMESTAMP, DURATION)
    library.add("_+_", INT, INT, INT)
    library.add("_+_", _LIST, _LIST, _LIST, overload="add_list")
    library.add("_+_", STRING, STRING, STRING, overload="add_string")
    library.add("_+_", UINT, UINT, UINT)
    library.add("_-_", DOUBLE, DOUBLE, DOUBLE)
    library.add("_-_", DURATION, DURATION, DURATION)
    library.add("_-_", INT, INT, INT)
    library.add("_-_", TIMESTAMP, TIMESTAMP, DURATION)
    library.add("_-_", DURATION, TIMESTAMP, TIMESTAMP)
    library.add("_-_", UINT, UINT, UINT)


def _orderings(library: Library) -> None:
    for operator, word in _ORDERINGS.items():
        library.add(operator, BOOL, BOOL, BOOL)
        for left, rights in _NUMBERS.items():
            for right in rights:
                library.add(operator, BOOL, left, right)
        library.add(operator, BOOL, STRING, STRING, overload=f"{word}_string")
        library.add(operator, BOOL, BYTES, BYTES, overload=f"{word}_bytes")
        library.add(operator, BOOL, TIMESTAMP, TIMESTAMP)
        library.add(operator, BOOL, DURATION, DURATION)


def _conversions(library: Library) -> None:
    for name, result, sources in _CONVERSIONS:
        for source in sources:
            library.add(name, result, source)
    library.add("bytes", BYTES, STRING, overload="string_to_bytes")
    library.add("string", STRING, BYTES, overload="bytes_to_string")
    library.add("dyn", DYN, _A)
    library.add("type", type_of(_A), _A)
    for sized in (BYTES, _LIST, _MAP, STRING):
        library.add("size", INT, sized)
        library.add_member("size", INT, sized)


def _texts(library: Library) -> None:
    for name, overload in (
        ("contains", "contains_string"),
        ("endsWith", "ends_with_string"),
        ("startsWith", "starts_with_string"),
        ("matches", "matches_string"),
    ):
        library.add_member(name, BOOL, STRING, STRING, overload=overload)
    library.add("matches", BOOL, STRING, STRING, overload="matches")


def _times(library: Library) -> None:
    for name in (*CALENDAR_PARTS, *CLOCK_PARTS):
        library.add_member(name, INT, TIMESTAMP)
        library.add_member(name, INT, TIMESTAMP, STRING)
    for name in CLOCK_PARTS:
        library.add_member(name, INT, DURATION)
