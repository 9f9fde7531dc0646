"""The static types of CEL, which the checker infers before evaluation.

Types are plain tuples, so equal types are equal keys. A type parameter is a type whose
kind starts with `?`. `Unifier` infers the type that replaces it. The rules are those of
cel-go's checker, because a selector must be accepted here exactly when the compiler of
the workload cluster accepts it.
"""

from __future__ import annotations

from typing import NamedTuple


class Type(NamedTuple):
    """A CEL type.

    Attributes:
        kind: name of the type, or `?name` for a type parameter.
        params: element type of a list, key and value type of a map, content of an optional,
            or the type that a type value names; else empty.

    """

    kind: str
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if self.kind.startswith("?"):
            return "dyn"
        if not self.params:
            return self.kind
        return f"{self.kind}({', '.join(map(str, self.params))})"


BOOL = Type("bool")
INT = Type("int")
UINT = Type("uint")
DOUBLE = Type("double")
STRING = Type("string")
BYTES = Type("bytes")
NULL = Type("null_type")
DURATION = Type("google.protobuf.Duration")
TIMESTAMP = Type("google.protobuf.Timestamp")
QUANTITY = Type("kubernetes.Quantity")
SEMVER = Type("kubernetes.Semver")
URL = Type("kubernetes.URL")
FORMAT = Type("kubernetes.NamedFormat")
IP = Type("net.IP")
CIDR = Type("net.CIDR")
DEVICE = Type("kubernetes.DRADevice")
DYN = Type("dyn")
# An attribute: unknown like `dyn`, but also allowed as the result of a whole selector.
ANY = Type("any")

OPTIONAL_KIND = "optional_type"
_OBJECTS = frozenset({QUANTITY, SEMVER, URL, FORMAT, IP, CIDR, DEVICE})
_NULLABLE = _OBJECTS | {DURATION, TIMESTAMP, NULL}
_SCALARS = frozenset({BOOL, DOUBLE, DURATION, INT, TIMESTAMP, UINT})


def list_of(element: Type) -> Type:
    """Return the type of a list with elements of type `element`."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of a map from `key` to `value`."""
    return Type("map", (key, value))


def type_of(named: Type) -> Type:
    """Return the type of an expression that names the type `named`."""
    return Type("type", (named,))


def optional_of(content: Type) -> Type:
    """Return the type of an optional value that may hold a `content`."""
    return Type(OPTIONAL_KIND, (content,))


def unwrapped(a: Type) -> Type:
    """Return the content of an optional type, or `a` itself."""
    return a.params[0] if a.kind == OPTIONAL_KIND else a


def is_scalar(a: Type) -> bool:
    """Return whether values of type `a` have size 1 in the cost model."""
    while a.kind == OPTIONAL_KIND:
        a = a.params[0]
    return a in _SCALARS


def surely_differ(a: Type, b: Type) -> bool:
    """Return whether two types cannot be unified, as far as their kinds show it."""
    return a.kind != b.kind and not (_is_flexible(a) or _is_flexible(b))


def _is_flexible(a: Type) -> bool:
    return a.kind[0] == "?" or a.kind in ("dyn", "any", "null_type")


def _is_nullable(a: Type) -> bool:
    return a in _NULLABLE or a.kind == OPTIONAL_KIND


def param(name: str) -> Type:
    return Type(f"?{name}")


def is_param(a: Type) -> bool:
    """Return whether `a` is a type parameter."""
    return a.kind[0] == "?"


def is_dyn(a: Type) -> bool:
    """Return whether a value of type `a` may be anything."""
    return a is DYN or a is ANY or a.kind in ("dyn", "any")


def _more_general(a: Type, b: Type) -> Type:
    """Return the less specific of two types that are known to agree."""
    return a if _at_most_as_specific(a, b) else b


def _at_most_as_specific(a: Type, b: Type) -> bool:
    if is_dyn(a) or is_param(a):
        return True
    if is_dyn(b) or is_param(b) or a.kind != b.kind:
        return False
    if a.kind == "type":
        return True
    return all(map(_at_most_as_specific, a.params, b.params))


class Unifier:
    """The types that replace the type parameters of one expression, as far as known."""

    def __init__(self) -> None:
        self._bound: dict[Type, Type] = {}
        self._fresh = 0

    def fresh(self) -> Type:
        """Return a new type parameter."""
        self._fresh += 1
        return param(f"{self._fresh}")

    def unify(self, targets: tuple[Type, ...], sources: tuple[Type, ...]) -> bool:
        """Bind parameters so that each source fits its target.

        Returns:
            Whether all of them fit. If not, no parameter is bound.

        """
        if len(targets) != len(sources):
            return False
        before = dict(self._bound)
        if all(map(self._unify, targets, sources)):
            return True
        self._bound = before
        return False

    def join(self, a: Type, b: Type) -> Type | None:
        """Return the type of a collection that holds both, or None if there is none."""
        return _more_general(a, b) if self.unify((a,), (b,)) else None

    def resolve(self, a: Type, *, final: bool = False) -> Type:
        """Replace the bound parameters in `a`; with `final` also unbound ones, by `dyn`."""
        while (bound := self._bound.get(a)) is not None:
            a = bound
        if is_param(a):
            return DYN if final else a
        if a.params:
            return Type(
                a.kind, tuple(self.resolve(inner, final=final) for inner in a.params)
            )
        return a

    def _unify(self, a: Type, b: Type) -> bool:
        if is_param(b):
            fits, bound = self._substitute(a, b)
            if fits or bound:
                return fits
        if is_param(a):
            return self._substitute(b, a)[0]
        if is_dyn(a) or is_dyn(b):
            return True
        if a is NULL or a == NULL:
            return _is_nullable(b)
        if b == NULL:
            return _is_nullable(a)
        if a.kind != b.kind:
            return False
        if a.kind == "type":
            return True
        if len(a.params) != len(b.params):
            return False
        return all(map(self._unify, a.params, b.params))

    def _substitute(self, a: Type, parameter: Type) -> tuple[bool, bool]:
        """Bind `parameter` to `a`.

        Returns:
            Whether that is possible, and whether the parameter was bound before.

        """
        if a == parameter:
            return True, True
        known = self._bound.get(parameter)
        if known is not None:
            if a == known:
                return True, True
            if not self._unify(a, known):
                return False, True
            general = _more_general(a, known)
            if not self._occurs(parameter, general):
                self._bound[parameter] = general
            return True, True
        if self._occurs(parameter, a):
            return False, False
        self._bound[parameter] = a
        return True, False

    def _occurs(self, parameter: Type, within: Type) -> bool:
        if parameter == within:
            return True
        if is_param(within):
            bound = self._bound.get(within)
            return bound is not None and self._occurs(parameter, bound)
        return any(self._occurs(parameter, inner) for inner in within.params)
