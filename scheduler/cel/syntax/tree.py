"""The tree of a parsed selector. `visitor.py` says how a pass walks over it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scheduler.cel.syntax.static_types import DYN, Type


@dataclass(slots=True, eq=False)
class Node:
    """Any part of a selector.

    Attributes:
        at: offset of its first character, or of its operator, in the text.
        type: what the checker found; `dyn` before it ran.
        depth: levels of nodes below this one.
        nesting: levels the reference parser would nest to read it.

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
    """A name: the device, a loop variable or a type. `rooted`: written with a leading dot, so it cannot be a loop variable."""

    name: str
    rooted: bool = False


@dataclass(slots=True, eq=False)
class Select(Node):
    """`operand.name`; with `test`, `has(operand.name)`."""

    operand: Node
    name: str
    test: bool = False


@dataclass(slots=True, eq=False)
class Call(Node):
    """A function or operator. Operators have their CEL names, such as `_==_`.

    Attributes:
        overloads: ids of every declaration that fits the argument types; the checker fills it in.

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
    """`[a, b]`."""

    elements: list[Node]


@dataclass(slots=True, eq=False)
class MapLiteral(Node):
    """`{key: value}`."""

    entries: list[tuple[Node, Node]]


@dataclass(slots=True, eq=False)
class Comprehension(Node):
    """A macro that loops.

    Attributes:
        macro: `all`, `exists`, `exists_one`, `filter` or `map`.
        predicate: the condition per element; None for `map` with two arguments.
        transform: what `map` makes of an element; None for every other macro.

    """

    macro: str
    over: Node
    variable: str
    predicate: Node | None
    transform: Node | None


@dataclass(slots=True, eq=False)
class Bind(Node):
    """`cel.bind(variable, value, body)`; `value` is evaluated when first needed."""

    variable: str
    value: Node
    body: Node


def qualified_name(node: Node) -> str | None:
    """The dotted name `node` may be read as, or None if it is not one."""
    names = []
    while isinstance(node, Select) and not node.test:
        names.append(node.name)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(names)])
