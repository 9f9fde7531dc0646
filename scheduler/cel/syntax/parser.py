"""Parse text to a tree.

Lark's table-driven parser parses the tokens by the grammar of `grammar.py`. It builds
the nodes during reduction, so there is no intermediate tree of twelve precedence levels
per name, and nothing recurses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedInput
from lark.exceptions import VisitError

from scheduler.cel.errors import SelectorError
from scheduler.cel.syntax import literals, static_types
from scheduler.cel.syntax.depth import Misuse, check_depth, with_depth
from scheduler.cel.syntax.grammar import build_parser
from scheduler.cel.syntax.lexer import RESERVED, refuse
from scheduler.cel.syntax.macros import expand_call, expand_member_call
from scheduler.cel.syntax.tree import (
    INDEX,
    OPTIONAL_INDEX,
    Call,
    Ident,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Node,
    Select,
    Ternary,
)

_LITERALS: dict[str, tuple[Callable[[str], Any], static_types.Type]] = {
    "INT_LIT": (literals.integer, static_types.INT),
    "UINT_LIT": (literals.unsigned, static_types.UINT),
    "FLOAT_LIT": (literals.double, static_types.DOUBLE),
    "STRING_LIT": (literals.string, static_types.STRING),
    "BYTES_LIT": (literals.bytestring, static_types.BYTES),
    "BOOL_LIT": (lambda text: text == "true", static_types.BOOL),
    # Each type of literal has a function that parses its text.
    "NULL_LIT": (lambda text: None, static_types.NULL),  # noqa: ARG005
}


class _Half:
    """The left half of a binary operator, before the right one has been read."""

    __slots__ = ("at", "left", "operator")

    def __init__(self, operator: str, left: Node, at: int) -> None:
        self.operator = operator
        self.left = left
        self.at = at


class _Unary:
    """A sequence of equal unary operators, and their operand."""

    __slots__ = ("at", "count", "operand", "sign")

    def __init__(self, sign: str, operand: Node, at: int) -> None:
        self.sign = sign
        self.operand = operand
        self.at = at
        self.count = 1


def _half(operator: str) -> Callable[[Any, list[Any]], _Half]:
    def make(_self: Any, children: list[Any]) -> _Half:
        return _Half(operator, children[0], children[1].start_pos)

    return make


def _name(token: Token) -> str:
    if token.value in RESERVED:
        raise Misuse(token.start_pos or 0, f"{token.value} is a reserved word")
    return str(token.value)


class _Build(Transformer[Token, Any]):  # type: ignore[misc]  # lark is not typed here
    """One method per rule of the grammar, called bottom up during parsing.

    Each method gets every token. A rule with one child is a precedence level without an
    operator.
    """

    def expr(self, children: list[Any]) -> Node:
        node: Node = children[0]
        if len(children) > 1:
            condition, mark, yes, _, no = children
            node = with_depth(
                Ternary(mark.start_pos, condition, yes, no), [condition, yes, no]
            )
        node.nesting += 1
        check_depth(node)
        return node

    def conditionalor(self, children: list[Any]) -> Node:
        if len(children) == 1:
            return children[0]  # type: ignore[no-any-return]
        left, operator, right = children
        terms = (
            left.terms
            if isinstance(left, Logic) and left.operator == operator.value
            else [left]
        )
        terms.append(right)
        node = Logic(operator.start_pos, str(operator.value), terms)
        # Only the last term can deepen the chain. Visiting all terms again would take
        # quadratic time.
        with_depth(node, [right])
        if left is not terms[0]:
            node.depth, node.nesting = (
                max(node.depth, left.depth),
                max(node.nesting, left.nesting),
            )
        else:
            node.depth, node.nesting = (
                max(node.depth, left.depth + 1),
                max(node.nesting, left.nesting),
            )
        return node

    conditionaland = conditionalor

    def relation(self, children: list[Any]) -> Node:
        if len(children) == 1:
            return children[0]  # type: ignore[no-any-return]
        half, right = children
        return with_depth(
            Call(half.at, half.operator, None, [half.left, right]),
            [half.left, right],
            1,
        )

    addition = relation

    def multiplication(self, children: list[Any]) -> Node:
        if isinstance(children[-1], _Unary):
            children = [*children[:-1], self._negate(children[-1])]
        return self.relation(children)

    relation_lt = _half("_<_")
    relation_le = _half("_<=_")
    relation_gt = _half("_>_")
    relation_ge = _half("_>=_")
    relation_eq = _half("_==_")
    relation_ne = _half("_!=_")
    relation_in = _half("@in")
    addition_add = _half("_+_")
    addition_sub = _half("_-_")
    multiplication_mul = _half("_*_")
    multiplication_div = _half("_/_")
    multiplication_mod = _half("_%_")

    def unary(self, children: list[Any]) -> Node | _Unary:
        if len(children) == 1:
            return children[0]  # type: ignore[no-any-return]
        operator, operand = children
        if not isinstance(operand, _Unary):
            return _Unary(str(operator.value), operand, operator.start_pos)
        if operand.sign != operator.value:
            raise Misuse(
                operator.start_pos,
                f"{operator.value}{operand.sign} is not CEL; put parentheses between them",
            )
        operand.count += 1
        operand.at = operator.start_pos
        return operand

    def _negate(self, unary: _Unary) -> Node:
        # CEL drops pairs of equal signs before it checks types.
        if unary.count % 2 == 0:
            return unary.operand
        return with_depth(
            Call(unary.at, f"{unary.sign}_", None, [unary.operand]), [unary.operand]
        )

    def unary_not(self, children: list[Any]) -> Any:
        return children[0]

    unary_neg = unary_not
    member = unary_not
    primary = unary_not

    def member_dot(self, children: list[Any]) -> Node:
        operand, dot, name = children
        return with_depth(Select(dot.start_pos, operand, str(name.value)), [operand], 1)

    def member_dot_arg(self, children: list[Any]) -> Node:
        target, dot, name, _, *rest = children
        args: list[Node] = rest[0] if len(rest) > 1 else []
        function = _name(name)
        at = name.start_pos or dot.start_pos
        expanded = expand_member_call(at, function, target, args)
        return expanded or with_depth(
            Call(at, function, target, args), [target, *args], 1
        )

    def member_optional_dot(self, children: list[Any]) -> Node:
        operand, dot, _, name = children
        select = Select(dot.start_pos, operand, str(name.value), optional=True)
        return with_depth(select, [operand], 1)

    def member_index(self, children: list[Any]) -> Node:
        operand, bracket, index, _ = children
        call = Call(bracket.start_pos, INDEX, None, [operand, index])
        return with_depth(call, [operand, index], 1)

    def member_optional_index(self, children: list[Any]) -> Node:
        operand, bracket, _, index, _ = children
        call = Call(bracket.start_pos, OPTIONAL_INDEX, None, [operand, index])
        return with_depth(call, [operand, index], 1)

    def member_object(self, children: list[Any]) -> Node:
        raise Misuse(
            children[1].start_pos, "messages cannot be built in a device selector"
        )

    def dot_ident_arg(self, children: list[Any]) -> Node:
        if children[1].value == "has":
            raise Misuse(
                children[1].start_pos, "has() is a macro and takes no leading dot"
            )
        return self.ident_arg(children[1:])

    def dot_ident(self, children: list[Any]) -> Node:
        return Ident(children[0].start_pos, _name(children[1]), rooted=True)

    def ident_arg(self, children: list[Any]) -> Node:
        name, _, *rest = children
        args: list[Node] = rest[0] if len(rest) > 1 else []
        function = _name(name)
        expanded = expand_call(name.start_pos, function, args)
        return expanded or with_depth(
            Call(name.start_pos, function, None, args), args, 1
        )

    def ident(self, children: list[Any]) -> Node:
        return Ident(children[0].start_pos, _name(children[0]))

    def paren_expr(self, children: list[Any]) -> Node:
        return children[1]  # type: ignore[no-any-return]

    def exprlist(self, children: list[Any]) -> list[Node]:
        return children[::2]

    fieldinits = exprlist

    def element(self, children: list[Any]) -> tuple[Node, bool]:
        return children[0], False

    def optional_element(self, children: list[Any]) -> tuple[Node, bool]:
        return children[1], True

    def elements(self, children: list[Any]) -> list[Any]:
        """Append to the elements or entries before, which grow in place."""
        before: list[Any] = children[0] if len(children) > 1 else []
        before.append(children[-1])
        return before

    def list_lit(self, children: list[Any]) -> Node:
        found: list[tuple[Node, bool]] = _literal_content(children)
        elements = [node for node, _ in found]
        optional = frozenset(at for at, (_, marked) in enumerate(found) if marked)
        literal = ListLiteral(children[0].start_pos, elements, optional)
        return with_depth(literal, elements)

    def entry(self, children: list[Any]) -> tuple[Node, Node, bool]:
        key, _, value = children
        return key, value, False

    def optional_entry(self, children: list[Any]) -> tuple[Node, Node, bool]:
        _, key, _, value = children
        return key, value, True

    entries = elements

    def map_lit(self, children: list[Any]) -> Node:
        found: list[tuple[Node, Node, bool]] = _literal_content(children)
        entries = [(key, value) for key, value, _ in found]
        optional = frozenset(at for at, (_, _, marked) in enumerate(found) if marked)
        below = [node for entry in found for node in entry[:2]]
        return with_depth(MapLiteral(children[0].start_pos, entries, optional), below)

    def literal(self, children: list[Any]) -> Node:
        token = children[0]
        read, kind = _LITERALS[token.type]
        try:
            return Literal(token.start_pos, read(token.value), kind)
        except ValueError as error:
            raise Misuse(token.start_pos, str(error)) from error


def _literal_content(children: list[Any]) -> list[Any]:
    """Return the elements or entries between two brackets, possibly none."""
    return children[1] if isinstance(children[1], list) else []


@lru_cache(maxsize=1)
def _parser() -> Lark:
    return build_parser(_Build())


def parse(text: str) -> Node:
    """Parse a selector.

    Args:
        text: one CEL expression.

    Returns:
        Its tree with macros expanded and without types.

    Raises:
        SelectorError: it is not CEL, or nests too deeply; with line and column.

    """
    try:
        root: Node = _parser().parse(text)
    except VisitError as error:
        if isinstance(error.orig_exc, Misuse):
            raise refuse(text, error.orig_exc.at, error.orig_exc.problem) from None
        raise
    except Misuse as error:
        raise refuse(text, error.at, error.problem) from None
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from None
    return root


def _syntax_error(text: str, error: UnexpectedInput) -> SelectorError:
    token = getattr(error, "token", None)
    if token is None or token.type == "$END":
        if not text.strip():
            return SelectorError("the selector is empty")
        return refuse(
            text, len(text.rstrip()), "the selector ends in the middle of an expression"
        )
    return refuse(text, token.start_pos, f"{token.value!r} is not expected here")
