"""The tree of a parsed selector. `visitor.py` describes how a pass walks over it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeGuard

from scheduler.cel.syntax.static_types import DYN, Type

INDEX = "_[_]"
OPTIONAL_INDEX = "_[?_]"


@dataclass(slots=True, eq=False)
class Node:
    """Any part of a selector.

    Attributes:
        at: offset of its first character, or of its operator, in the text.
        type: the type that the checker found; `dyn` before it ran.
        depth: levels of nodes below this one.
        nesting: levels that the parser of cel-go would nest to read it.

    """

    at: int
    type: Type = field(default=DYN, init=False)
    depth: int = field(default=0, init=False)
    nesting: int = field(default=0, init=False)


@dataclass(slots=True, eq=False)
class Literal(Node):
    """A constant. `value` is a runtime value."""

    value: Any
    literal_type: Type


@dataclass(slots=True, eq=False)
class Ident(Node):
    """A name: the device, a variable or a type.

    Attributes:
        rooted: written with a leading dot, so it cannot be a variable.

    """

    name: str
    rooted: bool = False


@dataclass(slots=True, eq=False)
class Select(Node):
    """`operand.name`, `operand.?name` or `has(operand.name)`.

    Attributes:
        test: it is `has(operand.name)`.
        optional: it is `operand.?name`.

    """

    operand: Node
    name: str
    test: bool = False
    optional: bool = False


@dataclass(slots=True, eq=False)
class Call(Node):
    """A function or operator. Operators have their CEL names, such as `_==_`.

    Attributes:
        overloads: ids of the declarations that fit the argument types, set by the checker.

    """

    function: str
    target: Node | None
    args: list[Node]
    overloads: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Logic(Node):
    """`&&` or `||` over two or more terms, flat however long the chain is."""

    operator: str
    terms: list[Node]


@dataclass(slots=True, eq=False)
class Ternary(Node):
    """`condition ? yes : no`."""

    condition: Node
    yes: Node
    no: Node


@dataclass(slots=True, eq=False)
class ListLiteral(Node):
    """`[a, ?b]`.

    Attributes:
        optional: positions of the elements that are optional values. An empty one is left
            out.

    """

    elements: list[Node]
    optional: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class MapLiteral(Node):
    """`{key: value, ?key: value}`.

    Attributes:
        optional: positions of the entries whose values are optional values. An entry with an
            empty one is left out.

    """

    entries: list[tuple[Node, Node]]
    optional: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class Comprehension(Node):
    """A macro that loops.

    Attributes:
        macro: `all`, `exists`, `exists_one`, `filter`, `map`, `transformList`,
            `transformMap` or `transformMapEntry`.
        variable: the element of a list or the key of a map; with two variables the index of
            a list or the key of a map.
        second: the second variable, which is the element or value, or empty.
        predicate: the condition per element, or None.
        transform: the expression that makes an element or entry of the result, or None.

    """

    macro: str
    over: Node
    variable: str
    second: str
    predicate: Node | None
    transform: Node | None


@dataclass(slots=True, eq=False)
class Bind(Node):
    """`cel.bind(variable, value, body)`; `value` is evaluated when it is first used."""

    variable: str
    value: Node
    body: Node


@dataclass(slots=True, eq=False)
class OptionalMap(Node):
    """`target.optMap(variable, body)`, or `optFlatMap` whose body is an optional itself."""

    target: Node
    variable: str
    body: Node
    flat: bool


def is_index(node: Node) -> TypeGuard[Call]:
    """Return whether `node` is `a[b]` or `a[?b]`."""
    return isinstance(node, Call) and node.function in (INDEX, OPTIONAL_INDEX)


def qualified_name(node: Node) -> str | None:
    """Return the dotted name that `node` may be read as, or None."""
    names = []
    while isinstance(node, Select) and not node.test and not node.optional:
        names.append(node.name)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(names)])
