"""The macros of CEL: calls that the parser replaces by loops and bindings.

A misspelt macro remains a call, so the checker reports it as an unknown function.
"""

from __future__ import annotations

from scheduler.cel.syntax.depth import Misuse, with_depth
from scheduler.cel.syntax.tree import (
    Bind,
    Call,
    Comprehension,
    Ident,
    Literal,
    MapLiteral,
    Node,
    OptionalMap,
    Select,
)

# Macros that loop, by name and number of arguments, with one variable.
_LOOPS = frozenset(
    {
        ("all", 2),
        ("exists", 2),
        ("exists_one", 2),
        ("filter", 2),
        ("map", 2),
        ("map", 3),
    }
)
# The same with two variables, and the names under which the tree knows them.
_PAIR_LOOPS = {
    ("all", 3): "all",
    ("exists", 3): "exists",
    ("existsOne", 3): "exists_one",
    ("exists_one", 3): "exists_one",
    ("transformList", 3): "transformList",
    ("transformList", 4): "transformList",
    ("transformMap", 3): "transformMap",
    ("transformMap", 4): "transformMap",
    ("transformMapEntry", 3): "transformMapEntry",
    ("transformMapEntry", 4): "transformMapEntry",
}
_OPTIONAL_MAPS = {("optMap", 2): False, ("optFlatMap", 2): True}
_SORT_BY = ("sortBy", 2)
_BIND = ("bind", 3)
_MAP_WITH_FILTER_ARGUMENTS = 3
_FILTERED_PAIR_ARGUMENTS = 4

# Names that the expansions of macros use internally.
_ACCUMULATORS = frozenset({"__result__", "@result"})
_SORTED = "@__sortBy_input__"
SORT_BY_KEYS = "@sortByAssociatedKeys"


def expand_call(at: int, function: str, args: list[Node]) -> Node | None:
    """Read `function(args)` as a macro.

    Args:
        at: offset of the call in the text.
        function: the name as written.
        args: the arguments as written.

    Returns:
        The expansion, or None if it is no macro.

    Raises:
        Misuse: it nests too deeply.

    """
    return _has(at, args[0]) if function == "has" and len(args) == 1 else None


def expand_member_call(
    at: int, function: str, target: Node, args: list[Node]
) -> Node | None:
    """Read `target.function(args)` as a macro.

    Args:
        at: offset of the call in the text.
        function: the name as written.
        target: the expression before the dot.
        args: the arguments as written.

    Returns:
        The expansion, or None if it is no macro.

    Raises:
        Misuse: the macro has no plain name for a variable, or nests too deeply.

    """
    shape = (function, len(args))
    if shape in _LOOPS:
        return _loop(at, function, target, args)
    if shape in _PAIR_LOOPS:
        return _pair_loop(at, _PAIR_LOOPS[shape], target, args)
    if shape in _OPTIONAL_MAPS:
        flat = _OPTIONAL_MAPS[shape]
        mapped = OptionalMap(at, target, _variable(args[0]), args[1], flat)
        return with_depth(mapped, [target, *args], 1)
    if shape == _SORT_BY:
        return _sort_by(at, target, args)
    if shape == _BIND and _is_cel(target):
        return with_depth(Bind(at, _variable(args[0]), args[1], args[2]), args, 1)
    return None


def _is_cel(target: Node) -> bool:
    return isinstance(target, Ident) and target.name == "cel" and not target.rooted


def _has(at: int, arg: Node) -> Node:
    if isinstance(arg, Select) and not arg.test and not arg.optional:
        test = Select(at, arg.operand, arg.name, test=True)
        return with_depth(test, [arg.operand], 1)
    # Not CEL; the checker decides whether it is accepted.
    return with_depth(Call(at, "has", None, [arg]), [arg], 1)


def _loop(at: int, macro: str, over: Node, args: list[Node]) -> Node:
    predicate: Node | None = args[1]
    transform = None
    if macro == "map":
        predicate = args[1] if len(args) == _MAP_WITH_FILTER_ARGUMENTS else None
        transform = args[-1]
    variable = _variable(args[0])
    loop = Comprehension(at, macro, over, variable, "", predicate, transform)
    return with_depth(loop, [over, *args], 1)


def _pair_loop(at: int, macro: str, over: Node, args: list[Node]) -> Node:
    first, second = _variable(args[0]), _variable(args[1])
    if first == second:
        raise Misuse(args[1].at, f"{first} is already the first variable of {macro}")
    predicate: Node | None = args[2]
    transform = None
    if macro.startswith("transform"):
        predicate = args[2] if len(args) == _FILTERED_PAIR_ARGUMENTS else None
        transform = args[-1]
    loop = Comprehension(at, macro, over, first, second, predicate, transform)
    return with_depth(loop, [over, *args], 1)


def _sort_by(at: int, target: Node, args: list[Node]) -> Node:
    """Bind the list, and sort it by the list of its keys."""
    if isinstance(target, Literal | MapLiteral):
        raise Misuse(at, "sortBy sorts lists, and this is a constant or a map")
    bound = Ident(at, _SORTED)
    keys = _loop(at, "map", Ident(at, _SORTED), args)
    sort = with_depth(Call(at, SORT_BY_KEYS, bound, [keys]), [bound, keys])
    return with_depth(Bind(at, _SORTED, target, sort), [target, sort], 1)


def _variable(node: Node) -> str:
    if not isinstance(node, Ident) or node.rooted:
        raise Misuse(node.at, "a variable of this macro must be a plain name")
    if node.name in _ACCUMULATORS:
        raise Misuse(node.at, f"{node.name} cannot be used as a variable")
    return node.name
