"""Declarations of the libraries that Kubernetes 1.35 adds to standard CEL.

The libraries and their versions are those of `k8s.io/apiserver/pkg/cel/environment`:
Kubernetes' URLs, regex and lists, optional types, quantities, the string extensions in
version 2, sets, IP addresses, CIDRs, named formats, two-variable comprehensions,
semantic versions, and the list extensions in version 3.
"""

from __future__ import annotations

from scheduler.cel.checking.overloads import Library
from scheduler.cel.runtime.formats import FORMATS
from scheduler.cel.syntax.macros import SORT_BY_KEYS
from scheduler.cel.syntax.static_types import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    DYN,
    FORMAT,
    INT,
    IP,
    QUANTITY,
    SEMVER,
    STRING,
    TIMESTAMP,
    UINT,
    URL,
    Type,
    list_of,
    map_of,
    optional_of,
    param,
)
from scheduler.cel.syntax.tree import INDEX, OPTIONAL_INDEX

_A = param("A")
_B = param("B")
_LIST = list_of(_A)
_MAP = map_of(_A, _B)
_STRINGS = list_of(STRING)
_OPTIONAL = optional_of(_A)
MAP_INSERT = "cel.@mapInsert"

# Ordered types, with the names that overload ids use.
_ORDERED = {
    INT: "int",
    UINT: "uint",
    DOUBLE: "double",
    BOOL: "bool",
    DURATION: "google.protobuf.Duration",
    TIMESTAMP: "google.protobuf.Timestamp",
    STRING: "string",
    BYTES: "bytes",
}


def declare(library: Library) -> None:
    """Declare the libraries, in the order in which Kubernetes adds them."""
    _urls(library)
    _regexes(library)
    _kubernetes_lists(library)
    _optionals(library)
    _quantities(library)
    _strings(library)
    _sets(library)
    _networks(library)
    _formats(library)
    _two_variable_comprehensions(library)
    _versions(library)
    _lists(library)


def _urls(library: Library) -> None:
    library.add("url", URL, STRING)
    library.add("isURL", BOOL, STRING)
    for name in (
        "getScheme",
        "getHost",
        "getHostname",
        "getPort",
        "getEscapedPath",
    ):
        library.add_member(name, STRING, URL)
    library.add_member("getQuery", map_of(STRING, _STRINGS), URL)


def _regexes(library: Library) -> None:
    library.add_member("find", STRING, STRING, STRING)
    library.add_member("findAll", _STRINGS, STRING, STRING)
    library.add_member("findAll", _STRINGS, STRING, STRING, INT)


def _kubernetes_lists(library: Library) -> None:
    for kind in _ORDERED:
        library.add_member("isSorted", BOOL, list_of(kind))
        library.add_member("max", kind, list_of(kind))
        library.add_member("min", kind, list_of(kind))
    for kind, name in (
        (INT, "int"),
        (UINT, "uint"),
        (DOUBLE, "double"),
        (DURATION, "duration"),
    ):
        overload = f"list_{name}_sum_{name}"
        library.add_member("sum", kind, list_of(kind), overload=overload)
    for name in ("indexOf", "lastIndexOf"):
        library.add_member(name, INT, _LIST, _A)


def _optionals(library: Library) -> None:
    library.add("optional.of", _OPTIONAL, _A)
    library.add("optional.ofNonZeroValue", _OPTIONAL, _A)
    library.add("optional.none", _OPTIONAL)
    library.add_member("value", _A, _OPTIONAL)
    library.add_member("hasValue", BOOL, _OPTIONAL)
    library.add_member("or", _OPTIONAL, _OPTIONAL, _OPTIONAL)
    library.add_member("orValue", _A, _OPTIONAL, _A)
    optional_list, optional_map = optional_of(_LIST), optional_of(_MAP)
    optional_value = optional_of(_B)
    library.add(OPTIONAL_INDEX, _OPTIONAL, _LIST, INT)
    library.add(OPTIONAL_INDEX, _OPTIONAL, optional_list, INT)
    library.add(OPTIONAL_INDEX, optional_value, _MAP, _A)
    library.add(OPTIONAL_INDEX, optional_value, optional_map, _A)
    library.add(INDEX, _OPTIONAL, optional_list, INT)
    library.add(INDEX, optional_value, optional_map, _A)
    library.add_member("last", _OPTIONAL, _LIST)
    library.add_member("first", _OPTIONAL, _LIST)
    library.add("optional.unwrap", _LIST, list_of(_OPTIONAL))
    library.add_member("unwrapOpt", _LIST, list_of(_OPTIONAL))


def _quantities(library: Library) -> None:
    library.add("quantity", QUANTITY, STRING)
    library.add("isQuantity", BOOL, STRING)
    library.add("sign", INT, QUANTITY)
    library.add_member("isInteger", BOOL, QUANTITY)
    library.add_member("asInteger", INT, QUANTITY)
    library.add_member("asApproximateFloat", DOUBLE, QUANTITY)
    for name in ("add", "sub"):
        library.add_member(name, QUANTITY, QUANTITY, QUANTITY)
        library.add_member(name, QUANTITY, QUANTITY, INT)
    _comparisons(library, QUANTITY)


def _comparisons(library: Library, kind: Type) -> None:
    library.add_member("compareTo", INT, kind, kind)
    library.add_member("isGreaterThan", BOOL, kind, kind)
    library.add_member("isLessThan", BOOL, kind, kind)


def _strings(library: Library) -> None:
    library.add_member("charAt", STRING, STRING, INT)
    for name in ("indexOf", "lastIndexOf"):
        library.add_member(name, INT, STRING, STRING)
        library.add_member(name, INT, STRING, STRING, INT)
    library.add_member("replace", STRING, STRING, STRING, STRING)
    library.add_member("replace", STRING, STRING, STRING, STRING, INT)
    library.add_member("split", _STRINGS, STRING, STRING)
    library.add_member("split", _STRINGS, STRING, STRING, INT)
    library.add_member("substring", STRING, STRING, INT)
    library.add_member("substring", STRING, STRING, INT, INT)
    for name in ("lowerAscii", "upperAscii", "trim"):
        library.add_member(name, STRING, STRING)
    overload = "string_format"
    library.add_member("format", STRING, STRING, list_of(DYN), overload=overload)
    library.add("strings.quote", STRING, STRING, overload="strings_quote")
    library.add_member("join", STRING, _STRINGS)
    library.add_member("join", STRING, _STRINGS, STRING)


def _sets(library: Library) -> None:
    for name in ("contains", "equivalent", "intersects"):
        library.add(f"sets.{name}", BOOL, _LIST, _LIST)


def _networks(library: Library) -> None:
    library.add("ip", IP, STRING, overload="string_to_ip")
    library.add("isIP", BOOL, STRING)
    library.add("ip.isCanonical", BOOL, STRING)
    library.add_member("family", INT, IP)
    for name in (
        "isUnspecified",
        "isLoopback",
        "isLinkLocalMulticast",
        "isLinkLocalUnicast",
        "isGlobalUnicast",
    ):
        library.add_member(name, BOOL, IP)
    library.add("string", STRING, IP)
    library.add("cidr", CIDR, STRING)
    library.add("isCIDR", BOOL, STRING)
    for name, content in (("containsIP", IP), ("containsCIDR", CIDR)):
        overload = f"cidr_{name}_string"
        library.add_member(name, BOOL, CIDR, STRING, overload=overload)
        library.add_member(name, BOOL, CIDR, content)
    library.add_member("ip", IP, CIDR, overload="cidr_ip")
    library.add_member("prefixLength", INT, CIDR)
    library.add_member("masked", CIDR, CIDR)
    library.add("string", STRING, CIDR)


def _formats(library: Library) -> None:
    library.add_member("validate", optional_of(_STRINGS), FORMAT, STRING)
    library.add("format.named", optional_of(FORMAT), STRING)
    for name in FORMATS:
        library.add(f"format.{name}", FORMAT)


def _two_variable_comprehensions(library: Library) -> None:
    library.add(MAP_INSERT, _MAP, _MAP, _A, _B)
    library.add(MAP_INSERT, _MAP, _MAP, _MAP)


def _versions(library: Library) -> None:
    for name, result in (("semver", SEMVER), ("isSemver", BOOL)):
        library.add(name, result, STRING)
        library.add(name, result, STRING, BOOL)
    for name in ("major", "minor", "patch"):
        library.add_member(name, INT, SEMVER)
    _comparisons(library, SEMVER)


def _lists(library: Library) -> None:
    library.add_member("slice", _LIST, _LIST, INT, INT, overload="list_slice")
    nested, unknown = list_of(_LIST), list_of(DYN)
    library.add_member("flatten", _LIST, nested, overload="list_flatten")
    library.add_member("flatten", unknown, unknown, INT, overload="list_flatten_int")
    for kind, name in _ORDERED.items():
        sorts, sorts_by_key = f"list_{name}_sort", f"list_{name}_sortByAssociatedKeys"
        keys = list_of(kind)
        library.add_member("sort", keys, keys, overload=sorts)
        library.add_member(SORT_BY_KEYS, _LIST, _LIST, keys, overload=sorts_by_key)
    library.add("lists.range", list_of(INT), INT, overload="lists_range")
    library.add_member("reverse", _LIST, _LIST, overload="list_reverse")
    library.add_member("distinct", _LIST, _LIST, overload="list_distinct")
