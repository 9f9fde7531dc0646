"""The macros of CEL: calls that are read as something else than a function.

The parser expands them, as CEL prescribes, which is why a misspelt one is an unknown function to the checker.
"""

from __future__ import annotations

from scheduler.cel.syntax.depth import Misuse, with_depth
from scheduler.cel.syntax.tree import Bind, Call, Comprehension, Ident, Node, Select

_LOOPS = frozenset({("all", 2), ("exists", 2), ("exists_one", 2), ("filter", 2), ("map", 2), ("map", 3)})
_TWO_VARIABLE_LOOPS = frozenset(
    {("all", 3), ("exists", 3), ("existsOne", 3)}
    | {(name, arity) for name in ("transformList", "transformMap", "transformMapEntry") for arity in (3, 4)},
)
_BIND_ARGUMENTS = 3
_MAP_WITH_FILTER_ARGUMENTS = 3
# The name that the expansion of a macro uses for itself.
_ACCUMULATOR = "__result__"


def expand_call(at: int, function: str, args: list[Node]) -> Node | None:
    """Read `function(args)` as a macro.

    Args:
        at: offset of the call in the text.
        function: the name as written.
        args: what was written between the parentheses.

    Returns:
        The expansion, or None if it is no macro.

    Raises:
        Misuse: it nests too deeply.

    """
    return _has(at, args[0]) if function == "has" and len(args) == 1 else None


def expand_member_call(at: int, function: str, target: Node, args: list[Node]) -> Node | None:
    """Read `target.function(args)` as a macro.

    Args:
        at: offset of the call in the text.
        function: the name as written.
        target: what is written before the dot.
        args: what was written between the parentheses.

    Returns:
        The expansion, or None if it is no macro.

    Raises:
        Misuse: a macro that is not supported, has no plain name for its variable, or nests too deeply.

    """
    if (function, len(args)) in _LOOPS:
        return _loop(at, function, target, args)
    if (function, len(args)) in _TWO_VARIABLE_LOOPS:
        raise Misuse(at, f"function {function} with two variables is not supported by the fleet scheduler")
    if function == "bind" and len(args) == _BIND_ARGUMENTS and isinstance(target, Ident) and target.name == "cel" and not target.rooted:
        return with_depth(Bind(at, _variable(args[0]), args[1], args[2]), args, 1)
    return None


def _has(at: int, arg: Node) -> Node:
    if isinstance(arg, Select) and not arg.test:
        return with_depth(Select(at, arg.operand, arg.name, test=True), [arg.operand], 1)
    # Not CEL; the checker decides whether it is accepted.
    return with_depth(Call(at, "has", None, [arg]), [arg], 1)


def _loop(at: int, macro: str, over: Node, args: list[Node]) -> Node:
    predicate: Node | None = args[1]
    transform = None
    if macro == "map":
        predicate = args[1] if len(args) == _MAP_WITH_FILTER_ARGUMENTS else None
        transform = args[-1]
    return with_depth(Comprehension(at, macro, over, _variable(args[0]), predicate, transform), [over, *args], 1)


def _variable(node: Node) -> str:
    if not isinstance(node, Ident) or node.rooted:
        raise Misuse(node.at, "the first argument of this macro must be a plain name")
    if node.name == _ACCUMULATOR:
        raise Misuse(node.at, f"{node.name} cannot be used as a variable")
    return node.name
