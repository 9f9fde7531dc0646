"""From text to tree: cel-python's grammar, tokens and nodes of this package.

cel-python's grammar file and lark's table-driven parser do the parsing; nodes are made while the parser reduces, so no
intermediate tree of twelve precedence levels per name is ever built and nothing recurses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import resources
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedInput
from lark.exceptions import VisitError

from scheduler.cel.errors import SelectorError
from scheduler.cel.syntax import literals, static_types
from scheduler.cel.syntax.depth import Misuse, check_depth, with_depth
from scheduler.cel.syntax.lexer import RESERVED, CelLexer, refuse
from scheduler.cel.syntax.macros import expand_call, expand_member_call
from scheduler.cel.syntax.tree import Call, Ident, ListLiteral, Literal, Logic, MapLiteral, Node, Select, Ternary

_LITERALS: dict[str, tuple[Callable[[str], Any], static_types.Type]] = {
    "INT_LIT": (literals.integer, static_types.INT),
    "UINT_LIT": (literals.unsigned, static_types.UINT),
    "FLOAT_LIT": (literals.double, static_types.DOUBLE),
    "STRING_LIT": (literals.string, static_types.STRING),
    "BYTES_LIT": (literals.bytestring, static_types.BYTES),
    "BOOL_LIT": (lambda text: text == "true", static_types.BOOL),
    "NULL_LIT": (lambda text: None, static_types.NULL),  # noqa: ARG005 - all literals are read alike
}


class _Half:
    """The left half of a binary operator, before the right one has been read."""

    __slots__ = ("at", "left", "operator")

    def __init__(self, operator: str, left: Node, at: int) -> None:
        self.operator = operator
        self.left = left
        self.at = at


class _Unary:
    """A row of equal unary operators and their operand."""

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
    """One method per rule of the grammar, called bottom up while parsing, with every token kept.

    A rule with one child is a level of precedence that the expression merely passes through.
    """

    def expr(self, children: list[Any]) -> Node:
        node: Node = children[0]
        if len(children) > 1:
            condition, mark, yes, _, no = children
            node = with_depth(Ternary(mark.start_pos, condition, yes, no), [condition, yes, no])
        node.nesting += 1
        check_depth(node)
        return node

    def conditionalor(self, children: list[Any]) -> Node:
        if len(children) == 1:
            return children[0]  # type: ignore[no-any-return]
        left, operator, right = children
        terms = left.terms if isinstance(left, Logic) and left.operator == operator.value else [left]
        terms.append(right)
        node = Logic(operator.start_pos, str(operator.value), terms)
        # Only the last term can deepen the chain; visiting all terms again would cost the square of their number.
        with_depth(node, [right])
        if left is not terms[0]:
            node.depth, node.nesting = max(node.depth, left.depth), max(node.nesting, left.nesting)
        else:
            node.depth, node.nesting = max(node.depth, left.depth + 1), max(node.nesting, left.nesting)
        return node

    conditionaland = conditionalor

    def relation(self, children: list[Any]) -> Node:
        if len(children) == 1:
            return children[0]  # type: ignore[no-any-return]
        half, right = children
        return with_depth(Call(half.at, half.operator, None, [half.left, right]), [half.left, right], 1)

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
            raise Misuse(operator.start_pos, f"{operator.value}{operand.sign} is not CEL; put parentheses between them")
        operand.count += 1
        operand.at = operator.start_pos
        return operand

    def _negate(self, unary: _Unary) -> Node:
        # CEL drops pairs of equal signs before it checks types.
        if unary.count % 2 == 0:
            return unary.operand
        return with_depth(Call(unary.at, f"{unary.sign}_", None, [unary.operand]), [unary.operand])

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
        return expanded or with_depth(Call(at, function, target, args), [target, *args], 1)

    def member_index(self, children: list[Any]) -> Node:
        operand, bracket, index, _ = children
        return with_depth(Call(bracket.start_pos, "_[_]", None, [operand, index]), [operand, index], 1)

    def member_object(self, children: list[Any]) -> Node:
        raise Misuse(children[1].start_pos, "messages cannot be built in a device selector")

    def dot_ident_arg(self, children: list[Any]) -> Node:
        if children[1].value == "has":
            raise Misuse(children[1].start_pos, "has() is a macro and takes no leading dot")
        return self.ident_arg(children[1:])

    def dot_ident(self, children: list[Any]) -> Node:
        return Ident(children[0].start_pos, _name(children[1]), rooted=True)

    def ident_arg(self, children: list[Any]) -> Node:
        name, _, *rest = children
        args: list[Node] = rest[0] if len(rest) > 1 else []
        function = _name(name)
        expanded = expand_call(name.start_pos, function, args)
        return expanded or with_depth(Call(name.start_pos, function, None, args), args, 1)

    def ident(self, children: list[Any]) -> Node:
        return Ident(children[0].start_pos, _name(children[0]))

    def paren_expr(self, children: list[Any]) -> Node:
        return children[1]  # type: ignore[no-any-return]

    def exprlist(self, children: list[Any]) -> list[Node]:
        return children[::2]

    mapinits = exprlist
    fieldinits = exprlist

    def list_lit(self, children: list[Any]) -> Node:
        elements: list[Node] = children[1] if len(children) > 2 else []  # noqa: PLR2004 - the two brackets
        return with_depth(ListLiteral(children[0].start_pos, elements), elements)

    def map_lit(self, children: list[Any]) -> Node:
        flat: list[Node] = children[1] if len(children) > 2 else []  # noqa: PLR2004 - the two braces
        return with_depth(MapLiteral(children[0].start_pos, list(zip(flat[::2], flat[1::2], strict=True))), flat)

    def literal(self, children: list[Any]) -> Node:
        token = children[0]
        read, kind = _LITERALS[token.type]
        try:
            return Literal(token.start_pos, read(token.value), kind)
        except ValueError as error:
            raise Misuse(token.start_pos, str(error)) from error


@lru_cache(maxsize=1)
def _grammar() -> Lark:
    """Build the parse tables of cel-python's grammar; a tenth of a second, once per process."""
    text = (resources.files("celpy") / "cel.lark").read_text(encoding="utf-8")
    return Lark(
        text,
        parser="lalr",
        lexer=CelLexer,
        start="expr",
        maybe_placeholders=False,
        keep_all_tokens=True,
        priority="invert",
        transformer=_Build(),
    )


def parse(text: str) -> Node:
    """Read a selector.

    Args:
        text: one CEL expression.

    Returns:
        Its tree, macros expanded; types are not known yet.

    Raises:
        SelectorError: it is not CEL, or nests too deeply; with line and column.

    """
    try:
        root: Node = _grammar().parse(text)
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
        return refuse(text, len(text.rstrip()), "the selector ends in the middle of an expression")
    hint = "; optional syntax (.?, [?) is not supported by the fleet scheduler" if token.value == "?" else ""
    return refuse(text, token.start_pos, f"{token.value!r} is not expected here{hint}")
