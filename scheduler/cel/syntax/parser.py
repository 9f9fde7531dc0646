"""From text to tree: cel-python's grammar, tokens and nodes of this package.

cel-python's grammar file and lark's table-driven parser do the parsing; nodes are made while the parser reduces, so no
intermediate tree of twelve precedence levels per name is ever built and nothing recurses. Macros are expanded here, as CEL
prescribes, which is why a misspelt one is an unknown function to the checker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import resources
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedInput
from lark.exceptions import VisitError

from scheduler.cel.errors import SelectorError
from scheduler.cel.limits import NESTING_MAX
from scheduler.cel.syntax import literals, static_types
from scheduler.cel.syntax.lexer import RESERVED, CelLexer, refuse
from scheduler.cel.syntax.tree import Bind, Call, Comprehension, Ident, ListLiteral, Literal, Logic, MapLiteral, Node, Select, Ternary

_LOOPS = frozenset({("all", 2), ("exists", 2), ("exists_one", 2), ("filter", 2), ("map", 2), ("map", 3)})
_TWO_VARIABLE_LOOPS = frozenset(
    {("all", 3), ("exists", 3), ("existsOne", 3)}
    | {(name, arity) for name in ("transformList", "transformMap", "transformMapEntry") for arity in (3, 4)},
)
_BIND_ARGUMENTS = 3
_MAP_WITH_FILTER_ARGUMENTS = 3
# The name that the expansion of a macro uses for itself.
_ACCUMULATOR = "__result__"

_LITERALS: dict[str, tuple[Callable[[str], Any], static_types.Type]] = {
    "INT_LIT": (literals.integer, static_types.INT),
    "UINT_LIT": (literals.unsigned, static_types.UINT),
    "FLOAT_LIT": (literals.double, static_types.DOUBLE),
    "STRING_LIT": (literals.string, static_types.STRING),
    "BYTES_LIT": (literals.bytestring, static_types.BYTES),
    "BOOL_LIT": (lambda text: text == "true", static_types.BOOL),
    "NULL_LIT": (lambda text: None, static_types.NULL),  # noqa: ARG005 - all literals are read alike
}


class _Misuse(Exception):
    """A construct that parses but is refused."""

    def __init__(self, at: int, problem: str) -> None:
        super().__init__(problem)
        self.at = at
        self.problem = problem


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


def _over(node: Node, below: list[Node], step: int = 0) -> Node:
    """Record how deep `node` is; `step` is 1 where the reference parser would nest once more for it."""
    depth = nesting = 0
    for child in below:
        depth = max(depth, child.depth)
        nesting = max(nesting, child.nesting)
    node.depth = depth + 1
    node.nesting = nesting + step
    if node.depth > NESTING_MAX or node.nesting > NESTING_MAX:
        raise _Misuse(node.at, f"the selector nests deeper than {NESTING_MAX} levels; split it into several selectors")
    return node


def _variable(node: Node) -> str:
    if not isinstance(node, Ident) or node.rooted:
        raise _Misuse(node.at, "the first argument of this macro must be a plain name")
    if node.name == _ACCUMULATOR:
        raise _Misuse(node.at, f"{node.name} cannot be used as a variable")
    return node.name


def _has(at: int, arg: Node) -> Node:
    if isinstance(arg, Select) and not arg.test:
        return _over(Select(at, arg.operand, arg.name, test=True), [arg.operand], 1)
    # Not CEL; the checker decides whether it is accepted.
    return _over(Call(at, "has", None, [arg]), [arg], 1)


def _loop(at: int, macro: str, over: Node, args: list[Node]) -> Node:
    predicate: Node | None = args[1]
    transform = None
    if macro == "map":
        predicate = args[1] if len(args) == _MAP_WITH_FILTER_ARGUMENTS else None
        transform = args[-1]
    return _over(Comprehension(at, macro, over, _variable(args[0]), predicate, transform), [over, *args], 1)


def _name(token: Token) -> str:
    if token.value in RESERVED:
        raise _Misuse(token.start_pos or 0, f"{token.value} is a reserved word")
    return str(token.value)


class _Build(Transformer[Token, Any]):  # type: ignore[misc]  # lark is not typed here
    """One method per rule of the grammar, called bottom up while parsing, with every token kept.

    A rule with one child is a level of precedence that the expression merely passes through.
    """

    def expr(self, children: list[Any]) -> Node:
        node: Node = children[0]
        if len(children) > 1:
            condition, mark, yes, _, no = children
            node = _over(Ternary(mark.start_pos, condition, yes, no), [condition, yes, no])
        node.nesting += 1
        if node.nesting > NESTING_MAX:
            raise _Misuse(node.at, f"the selector nests deeper than {NESTING_MAX} levels; split it into several selectors")
        return node

    def conditionalor(self, children: list[Any]) -> Node:
        if len(children) == 1:
            return children[0]  # type: ignore[no-any-return]
        left, operator, right = children
        terms = left.terms if isinstance(left, Logic) and left.operator == operator.value else [left]
        terms.append(right)
        node = Logic(operator.start_pos, str(operator.value), terms)
        # Only the newcomer can deepen the chain; looking at all terms again would cost the square of their number.
        _over(node, [right])
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
        return _over(Call(half.at, half.operator, None, [half.left, right]), [half.left, right], 1)

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
            raise _Misuse(operator.start_pos, f"{operator.value}{operand.sign} is not CEL; put parentheses between them")
        operand.count += 1
        operand.at = operator.start_pos
        return operand

    def _negate(self, unary: _Unary) -> Node:
        # CEL drops pairs of equal signs before it checks types.
        if unary.count % 2 == 0:
            return unary.operand
        return _over(Call(unary.at, f"{unary.sign}_", None, [unary.operand]), [unary.operand])

    def unary_not(self, children: list[Any]) -> Any:
        return children[0]

    unary_neg = unary_not
    member = unary_not
    primary = unary_not

    def member_dot(self, children: list[Any]) -> Node:
        operand, dot, name = children
        return _over(Select(dot.start_pos, operand, str(name.value)), [operand], 1)

    def member_dot_arg(self, children: list[Any]) -> Node:
        target, dot, name, _, *rest = children
        args: list[Node] = rest[0] if len(rest) > 1 else []
        function = _name(name)
        at = name.start_pos or dot.start_pos
        if (function, len(args)) in _LOOPS:
            return _loop(at, function, target, args)
        if (function, len(args)) in _TWO_VARIABLE_LOOPS:
            raise _Misuse(at, f"function {function} with two variables is not supported by the fleet scheduler")
        if function == "bind" and len(args) == _BIND_ARGUMENTS and isinstance(target, Ident) and target.name == "cel" and not target.rooted:
            return _over(Bind(at, _variable(args[0]), args[1], args[2]), args, 1)
        return _over(Call(at, function, target, args), [target, *args], 1)

    def member_index(self, children: list[Any]) -> Node:
        operand, bracket, index, _ = children
        return _over(Call(bracket.start_pos, "_[_]", None, [operand, index]), [operand, index], 1)

    def member_object(self, children: list[Any]) -> Node:
        raise _Misuse(children[1].start_pos, "messages cannot be built in a device selector")

    def dot_ident_arg(self, children: list[Any]) -> Node:
        if children[1].value == "has":
            raise _Misuse(children[1].start_pos, "has() is a macro and takes no leading dot")
        return self.ident_arg(children[1:])

    def dot_ident(self, children: list[Any]) -> Node:
        return Ident(children[0].start_pos, _name(children[1]), rooted=True)

    def ident_arg(self, children: list[Any]) -> Node:
        name, _, *rest = children
        args: list[Node] = rest[0] if len(rest) > 1 else []
        function = _name(name)
        if function == "has" and len(args) == 1:
            return _has(name.start_pos, args[0])
        return _over(Call(name.start_pos, function, None, args), args, 1)

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
        return _over(ListLiteral(children[0].start_pos, elements), elements)

    def map_lit(self, children: list[Any]) -> Node:
        flat: list[Node] = children[1] if len(children) > 2 else []  # noqa: PLR2004 - the two braces
        return _over(MapLiteral(children[0].start_pos, list(zip(flat[::2], flat[1::2], strict=True))), flat)

    def literal(self, children: list[Any]) -> Node:
        token = children[0]
        read, kind = _LITERALS[token.type]
        try:
            return Literal(token.start_pos, read(token.value), kind)
        except ValueError as error:
            raise _Misuse(token.start_pos, str(error)) from error


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
        if isinstance(error.orig_exc, _Misuse):
            raise refuse(text, error.orig_exc.at, error.orig_exc.problem) from None
        raise
    except _Misuse as error:
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
