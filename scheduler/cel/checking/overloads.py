"""Function declarations, and the table to which the libraries add them."""

from __future__ import annotations

from typing import NamedTuple

from scheduler.cel.syntax.static_types import Type, is_param


class Overload(NamedTuple):
    """One way to call a function.

    Attributes:
        id: name of the declaration.
        member: called as `first.name(rest)`; otherwise as `name(first, rest)`.
        args: argument types, the receiver first.
        result: result type.
        generic: type parameters occur in it, so every call needs its own.

    """

    id: str
    member: bool
    args: tuple[Type, ...]
    result: Type
    generic: bool


class Library:
    """Declarations by function name.

    If the type of an argument is unknown, several overloads match and their order
    determines the result type. So libraries are added in the order of Kubernetes.
    Overload ids matter only if costs or implementations depend on them. Those ids are
    the ids of cel-go.
    """

    def __init__(self) -> None:
        self._table: dict[str, list[Overload]] = {}

    def add(self, name: str, result: Type, *args: Type, overload: str = "") -> None:
        """Declare `name(args)`."""
        self._declare(name, result, args, overload, member=False)

    def add_member(
        self, name: str, result: Type, *args: Type, overload: str = ""
    ) -> None:
        """Declare `first.name(rest)`."""
        self._declare(name, result, args, overload, member=True)

    def functions(self) -> dict[str, tuple[Overload, ...]]:
        """Return all declarations."""
        return {name: tuple(overloads) for name, overloads in self._table.items()}

    def _declare(
        self,
        name: str,
        result: Type,
        args: tuple[Type, ...],
        overload: str,
        *,
        member: bool,
    ) -> None:
        overloads = self._table.setdefault(name, [])
        overload = overload or f"{name}_{len(overloads)}"
        generic = any(map(_has_params, (*args, result)))
        overloads.append(Overload(overload, member, args, result, generic))


def _has_params(kind: Type) -> bool:
    return is_param(kind) or any(map(_has_params, kind.params))
