"""From a checked tree to a program, and from a program and a device to a verdict.

cel-python's own evaluator stops at seventy parentheses, counts no cost and takes `true == 1` for true, so the tree is compiled
to a short list of instructions for the small stack machine of `machine.py`. Constants are folded as Kubernetes folds them,
because it refuses a selector whose constant cannot be made, and charges nothing for one that can.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple, cast

from scheduler.cel.checking.declarations import VARIABLES
from scheduler.cel.cost.costs import LIST_COST, MAP_COST, call_cost
from scheduler.cel.errors import EvalError
from scheduler.cel.runtime import instructions as ops
from scheduler.cel.runtime import regexes
from scheduler.cel.runtime.functions import implementation
from scheduler.cel.runtime.instructions import Instruction, Program
from scheduler.cel.runtime.steps import call_steps
from scheduler.cel.runtime.values import TypeValue, Uint, make_map
from scheduler.cel.syntax import tree
from scheduler.cel.syntax.lexer import refuse
from scheduler.cel.syntax.static_types import DEVICE
from scheduler.cel.syntax.visitor import Visit, Visitor

_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})
_PATTERN_CALLS = frozenset({"matches", "find", "findAll"})
_NOT_CONSTANT = object()

# The reference reads an attribute path as one step: the step costs 1, every field or index on it another 1. As a branch of
# `? :` the step itself is free.
_PATH_COST = 1

# Kubernetes turns membership in a constant list of these into a set lookup.
_PRIMITIVES = (bool, int, float, str, Uint)


def _is_path(node: tree.Node) -> bool:
    return isinstance(node, tree.Ident | tree.Select) or (isinstance(node, tree.Call) and node.function == "_[_]")


class _Local(NamedTuple):
    """A variable of a macro that is in scope: its slot, and whether `cel.bind` made it."""

    name: str
    slot: int
    is_binding: bool


class Compiler(Visitor):
    """Instructions for one selector."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._code: list[Instruction] = []
        self._locals: list[_Local] = []  # innermost last
        self._slot_count = 1  # slot 0 is the device
        self._pattern_size = 0
        self._branches: set[int] = set()  # ids of nodes that are branches of a ternary

    def compile(self, root: tree.Node) -> Program:
        """Compile a checked tree.

        Raises:
            SelectorError: a constant that cannot be made, such as `int("x")` or a broken pattern.

        """
        self.walk(root)
        self._emit(ops.END)
        return Program(tuple(self._code), self._slot_count, self._pattern_size)

    def _emit(self, operation: int, a: Any = None, b: Any = None, cost: int = 0) -> int:
        self._code.append((operation, a, b, cost))
        return len(self._code) - 1

    def _patch(self, at: int, *, a: Any = _NOT_CONSTANT, b: Any = _NOT_CONSTANT) -> None:
        operation, old_a, old_b, cost = self._code[at]
        self._code[at] = (operation, old_a if a is _NOT_CONSTANT else a, old_b if b is _NOT_CONSTANT else b, cost)

    def _constant(self, since: int) -> Any:
        """The constant that the code from `since` on pushes, if it does only that."""
        return self._constant_between(since, len(self._code))

    def _constant_between(self, start: int, end: int) -> Any:
        if end == start + 1 and self._code[start][0] == ops.CONST:
            return self._code[start][1]
        return _NOT_CONSTANT

    def _fold(self, node: tree.Node, since: int, value: Any) -> None:
        """Replace the code since `since` by a constant."""
        if isinstance(value, EvalError):
            raise refuse(self._text, node.at, value.reason)
        del self._code[since:]
        self._emit(ops.CONST, value)

    def _literal(self, node: tree.Literal) -> Visit:
        self._emit(ops.CONST, node.value)
        return
        yield  # makes this a generator, as every visit is

    def _ident(self, node: tree.Ident) -> Visit:
        self._variable(node, 0 if id(node) in self._branches else _PATH_COST)
        return
        yield

    def _variable(self, node: tree.Ident, cost: int) -> None:
        for local in reversed(self._locals):
            if local.name == node.name:
                self._emit(ops.BOUND if local.is_binding else ops.VAR, local.slot, cost=cost)
                return
        if VARIABLES[node.name] == DEVICE:
            self._emit(ops.VAR, 0, cost=cost)
        else:
            self._emit(ops.CONST, TypeValue(node.name))

    def _shadowed(self, name: str) -> bool:
        return any(local.name == name for local in self._locals)

    def _select(self, node: tree.Select) -> Visit:
        return self._path(node)

    def _path(self, node: tree.Select | tree.Call) -> Visit:
        """Fields and indexes from the root outwards; the whole path is one step."""
        name = tree.qualified_name(node)
        if name is not None and name in VARIABLES and not self._shadowed(name):
            self._emit(ops.CONST, TypeValue(name))
            return
        steps: list[tree.Node] = []
        root: tree.Node = node
        while isinstance(root, tree.Select) or (isinstance(root, tree.Call) and root.function == "_[_]"):
            if isinstance(root, tree.Select) and root.test and steps:
                break  # a verdict of `has`, not part of the path
            steps.append(root)
            root = root.operand if isinstance(root, tree.Select) else root.args[0]
        test = isinstance(node, tree.Select) and node.test
        step_cost = 0 if id(node) in self._branches and not test else _PATH_COST
        if isinstance(root, tree.Ident):
            self._variable(root, step_cost)
            step_cost = 0
        else:
            yield root
            if isinstance(root, tree.Ternary):
                step_cost = 0
        for step in reversed(steps):
            if isinstance(step, tree.Select):
                if step.test:
                    # `has` is free of the path's own step.
                    step_cost -= _PATH_COST
                self._emit(ops.HAS if step.test else ops.FIELD, step.name, max(step_cost, 0), cost=1 + step_cost)
            else:
                index = cast("tree.Call", step).args[1]
                if _is_path(index) or isinstance(index, tree.Ternary):
                    self._branches.add(id(index))
                yield index
                self._emit(ops.INDEX, None, step_cost, cost=1 + step_cost)
            step_cost = 0

    def _call(self, node: tree.Call) -> Visit:
        if node.function == "_[_]":
            yield from self._path(node)
            return
        since = len(self._code)
        args = node.args if node.target is None else [node.target, *node.args]
        starts = []
        for arg in args:
            starts.append(len(self._code))
            yield arg
        starts.append(len(self._code))
        constants = [self._constant_between(start, end) for start, end in pairwise(starts)]
        function = implementation(node.function, node.overloads)
        if node.function in _CONVERSIONS and len(args) == 1 and constants[0] is not _NOT_CONSTANT:
            self._fold(node, since, function(constants[0]))
        elif node.overloads != ("in_list",) or type(constants[1]) is not list or not self._membership(since, constants[1]):
            self._check_pattern(node, constants)
            self._emit(ops.CALL, (function, call_cost(node.function, node.overloads), call_steps(node.function)), len(args))

    def _membership(self, since: int, values: list[Any]) -> bool:
        """Compile membership in a constant list, if Kubernetes treats that list specially; nothing is in an empty one."""
        if not values:
            del self._code[since:]
            self._emit(ops.CONST, False)  # noqa: FBT003 - a CEL value
            return True
        if any(type(value) not in _PRIMITIVES for value in values):
            return False
        self._code.pop()
        self._emit(ops.MEMBER, values)
        return True

    def _check_pattern(self, node: tree.Call, constants: list[Any]) -> None:
        if node.function not in _PATTERN_CALLS:
            return
        # Kubernetes checks the first written argument of `matches` as a pattern even where it is the text.
        first_written = node.args[0].value if node.function == "matches" and isinstance(node.args[0], tree.Literal) else _NOT_CONSTANT
        for pattern in (constants[1], first_written):
            if type(pattern) is str:
                compiled = regexes.compile_pattern(pattern)
                if isinstance(compiled, EvalError):
                    raise refuse(self._text, node.at, compiled.reason)
                self._pattern_size += regexes.pattern_size(compiled)

    def _logic(self, node: tree.Logic) -> Visit:
        absorbing = node.operator == "||"
        self._emit(ops.LOGIC, not absorbing)
        terms = []
        for term in node.terms:
            yield term
            terms.append(self._emit(ops.LOGIC_TERM, absorbing))
        for at in terms:
            self._patch(at, b=len(self._code))

    def _ternary(self, node: tree.Ternary) -> Visit:
        self._branches.update((id(node.yes), id(node.no)))
        yield node.condition
        test = self._emit(ops.TERNARY)
        yield node.yes
        jump = self._emit(ops.JUMP)
        self._patch(test, a=len(self._code))
        yield node.no
        self._patch(test, b=len(self._code))
        self._patch(jump, a=len(self._code))

    def _list(self, node: tree.ListLiteral) -> Visit:
        since = len(self._code)
        yield from node.elements
        if all(operation == ops.CONST for operation, *_ in self._code[since:]):
            self._fold(node, since, [value for _, value, *_ in self._code[since:]])
        else:
            self._emit(ops.LIST, len(node.elements), cost=LIST_COST)

    def _map(self, node: tree.MapLiteral) -> Visit:
        since = len(self._code)
        for key, value in node.entries:
            yield key
            yield value
        pushed = self._code[since:]
        if all(operation == ops.CONST for operation, *_ in pushed):
            made = make_map([value for _, value, *_ in pushed])
            del self._code[since:]
            self._emit(ops.CONST, made)
        else:
            self._emit(ops.MAP, 2 * len(node.entries), cost=MAP_COST)

    def _enter(self, variable: str, *, is_binding: bool) -> int:
        slot = self._slot_count
        self._slot_count += 1
        self._locals.append(_Local(variable, slot, is_binding))
        return slot

    def _comprehension(self, node: tree.Comprehension) -> Visit:
        yield node.over
        slot = self._enter(node.variable, is_binding=False)
        begin = self._emit(ops.LOOP, node.macro)
        following = self._emit(ops.LOOP_NEXT, slot)
        if node.predicate is not None:
            yield node.predicate
        if node.transform is None:
            self._emit(ops.LOOP_STEP, (node.macro, slot))
        else:
            if node.predicate is not None:
                self._emit(ops.LOOP_WHEN, following)
            since = len(self._code)
            yield node.transform
            # A list of one constant is itself a constant and costs nothing to make.
            making = 0 if self._constant(since) is not _NOT_CONSTANT else LIST_COST
            self._emit(ops.LOOP_STEP, (node.macro, slot), cost=making)
        self._emit(ops.JUMP, following)
        self._locals.pop()
        self._patch(following, b=len(self._code))
        self._emit(ops.LOOP_END, node.macro)
        self._patch(begin, b=len(self._code))

    def _bind(self, node: tree.Bind) -> Visit:
        begin = self._emit(ops.BIND)
        yield node.value
        slot = self._enter(node.variable, is_binding=True)
        self._emit(ops.RETURN)
        self._patch(begin, a=slot, b=len(self._code))
        yield node.body
        self._locals.pop()
