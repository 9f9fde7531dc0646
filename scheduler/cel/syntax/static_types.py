"""The static types of CEL: what the checker knows about a value before evaluation.

Types are plain tuples, so that equal types are equal and can be keys. A type parameter is a type whose kind starts with `?`;
`Unifier` infers what it stands for. The rules are those of the CEL reference checker, because a selector is accepted here
exactly when the workload cluster's own compiler accepts it.
"""

from __future__ import annotations

from typing import NamedTuple


class Type(NamedTuple):
    """A CEL type.

    Attributes:
        kind: name of the type, or `?name` for a type parameter.
        params: element type of a list, key and value type of a map, the type a type value names; else empty.

    """

    kind: str
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if self.kind.startswith("?"):
            return "dyn"
        return f"{self.kind}({', '.join(map(str, self.params))})" if self.params else self.kind


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
DEVICE = Type("kubernetes.DRADevice")
DYN = Type("dyn")
# An attribute: unknown like `dyn`, but also allowed as the result of a whole selector.
ANY = Type("any")

_OBJECTS = frozenset({QUANTITY, SEMVER, DEVICE})
_NULLABLE = _OBJECTS | {DURATION, TIMESTAMP, NULL}
SCALARS = frozenset({BOOL, DOUBLE, DURATION, INT, TIMESTAMP, UINT})


def list_of(element: Type) -> Type:
    """The type of a list with elements of `element`."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """The type of a map from `key` to `value`."""
    return Type("map", (key, value))


def type_of(named: Type) -> Type:
    """The type of an expression that names the type `named`."""
    return Type("type", (named,))


def param(name: str) -> Type:
    """A type parameter."""
    return Type(f"?{name}")


def is_param(a: Type) -> bool:
    """Whether `a` is a type parameter."""
    return a.kind[0] == "?"


def is_dyn(a: Type) -> bool:
    """Whether nothing is known about a value of `a`."""
    return a is DYN or a is ANY or a.kind in ("dyn", "any")


def _more_general(a: Type, b: Type) -> Type:
    """Choose the less specific of two types that are known to agree."""
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
    """What each type parameter stands for, as far as one expression has determined it."""

    def __init__(self) -> None:
        self._bound: dict[Type, Type] = {}
        self._fresh = 0

    def fresh(self) -> Type:
        """A parameter that nothing is known about."""
        self._fresh += 1
        return param(f"{self._fresh}")

    def unify(self, targets: tuple[Type, ...], sources: tuple[Type, ...]) -> bool:
        """Bind parameters so that each source fits its target; without success nothing is bound. Says whether it succeeded."""
        if len(targets) != len(sources):
            return False
        before = dict(self._bound)
        if all(map(self._unify, targets, sources)):
            return True
        self._bound = before
        return False

    def join(self, a: Type, b: Type) -> Type | None:
        """The type of a collection that holds both, or None if CEL refuses the mixture."""
        return _more_general(a, b) if self.unify((a,), (b,)) else None

    def resolve(self, a: Type, *, final: bool = False) -> Type:
        """Replace every bound parameter in `a`; with `final` also the unbound ones, by `dyn`."""
        while (bound := self._bound.get(a)) is not None:
            a = bound
        if is_param(a):
            return DYN if final else a
        if a.params:
            return Type(a.kind, tuple(self.resolve(inner, final=final) for inner in a.params))
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
            return b in _NULLABLE
        if b == NULL:
            return a in _NULLABLE
        if a.kind != b.kind:
            return False
        if a.kind == "type":
            return True
        return len(a.params) == len(b.params) and all(map(self._unify, a.params, b.params))

    def _substitute(self, a: Type, parameter: Type) -> tuple[bool, bool]:
        """Bind `parameter` to `a`: whether that is possible, and whether it was bound already."""
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
