"""Compile a checked tree to a program.

cel-python's own evaluator fails at seventy nested parentheses, counts no cost, and
evaluates `true == 1` to true. So this module compiles the tree to instructions for the
small stack machine of `machine.py`. It folds constants as Kubernetes does: a selector
with an invalid constant is rejected, and a valid constant has no cost.
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
from scheduler.cel.syntax.static_types import DEVICE, OPTIONAL_KIND
from scheduler.cel.syntax.visitor import Visit, Visitor

_CONVERSIONS = frozenset(
    {
        "bool",
        "bytes",
        "double",
        "duration",
        "dyn",
        "int",
        "string",
        "timestamp",
        "type",
        "uint",
    }
)
_PATTERN_CALLS = frozenset({"matches", "find", "findAll"})
_NOT_CONSTANT = object()

# cel-go evaluates an attribute path as one step. The step costs 1, and every field or
# index on it costs 1 more. As a branch of `? :` the step itself has no cost.
_PATH_COST = 1

# Kubernetes turns membership in a constant list of these into a set lookup.
_PRIMITIVES = (bool, int, float, str, Uint)

_ALTERNATIVES = {"or": False, "orValue": True}


def _is_path(node: tree.Node) -> bool:
    return isinstance(node, tree.Ident | tree.Select) or tree.is_index(node)


def _is_conditional(node: tree.Node) -> bool:
    return isinstance(node, tree.Ternary | tree.OptionalMap)


def _may_be_optional(node: tree.Node) -> bool:
    return node.type.kind in (OPTIONAL_KIND, "dyn", "null_type")


def _may_be_list(node: tree.Node) -> bool:
    return node.type.kind in ("list", "dyn", "any")


class _Local(NamedTuple):
    """A variable of a macro that is in scope: its slot, and whether it is a binding."""

    name: str
    slot: int
    is_binding: bool


class Compiler(Visitor):
    """The instructions of one selector."""

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
            SelectorError: a constant is invalid, such as `int("x")` or a malformed pattern.

        """
        self.walk(root)
        self._emit(ops.END)
        return Program(tuple(self._code), self._slot_count, self._pattern_size)

    def _emit(self, operation: int, a: Any = None, b: Any = None, cost: int = 0) -> int:
        self._code.append((operation, a, b, cost))
        return len(self._code) - 1

    def _patch(
        self, at: int, *, a: Any = _NOT_CONSTANT, b: Any = _NOT_CONSTANT
    ) -> None:
        operation, old_a, old_b, cost = self._code[at]
        self._code[at] = (
            operation,
            old_a if a is _NOT_CONSTANT else a,
            old_b if b is _NOT_CONSTANT else b,
            cost,
        )

    def _constant(self, since: int) -> Any:
        """Return the constant that the code from `since` pushes, or `_NOT_CONSTANT`."""
        return self._constant_between(since, len(self._code))

    def _constant_between(self, start: int, end: int) -> Any:
        if end == start + 1 and self._code[start][0] == ops.CONST:
            return self._code[start][1]
        return _NOT_CONSTANT

    def _fold(self, node: tree.Node, since: int, value: Any) -> None:
        """Replace the code from `since` by a constant."""
        if isinstance(value, EvalError):
            raise refuse(self._text, node.at, value.reason)
        del self._code[since:]
        self._emit(ops.CONST, value)

    def _literal(self, node: tree.Literal) -> Visit:
        self._emit(ops.CONST, node.value)
        return
        yield  # makes this a generator, like every other visit

    def _ident(self, node: tree.Ident) -> Visit:
        is_variable = self._variable(
            node, 0 if id(node) in self._branches else _PATH_COST
        )
        if is_variable and _may_be_optional(node):
            self._emit(ops.REREAD)
        return
        yield

    def _variable(self, node: tree.Ident, cost: int) -> bool:
        """Push a name, and return whether it is a variable of a macro."""
        for local in reversed(self._locals):
            if local.name == node.name:
                if node.type.kind == "type":
                    raise refuse(
                        self._text,
                        node.at,
                        f"the variable {node.name} cannot hold a type",
                    )
                operation = ops.BOUND if local.is_binding else ops.VAR
                self._emit(operation, local.slot, cost=cost)
                return True
        if VARIABLES[node.name] == DEVICE:
            self._emit(ops.VAR, 0, cost=cost)
        else:
            self._emit(ops.CONST, TypeValue(node.name))
        return False

    def _shadowed(self, name: str) -> bool:
        return any(local.name == name for local in self._locals)

    def _select(self, node: tree.Select) -> Visit:
        return self._path(node)

    def _path(self, node: tree.Select | tree.Call) -> Visit:
        """Compile fields and indexes from the root outwards; the whole path is one step."""
        name = tree.qualified_name(node)
        if name is not None and name in VARIABLES and not self._shadowed(name):
            self._emit(ops.CONST, TypeValue(name))
            return
        root, steps = _split_path(node)
        test = isinstance(node, tree.Select) and node.test
        step_cost = 0 if id(node) in self._branches and not test else _PATH_COST
        if isinstance(root, tree.Ident):
            is_variable = self._variable(root, step_cost)
            step_cost = 0
        else:
            is_variable = True
            yield root
            if _is_conditional(root):
                step_cost = 0
        if any(map(_is_optional_step, steps)) or (
            is_variable and _may_be_optional(root)
        ):
            # The path's own step has no cost in `has`.
            step_cost -= test * _PATH_COST
            in_branch = id(node) in self._branches
            yield from self._optional_steps(steps, step_cost, in_branch)
        else:
            yield from self._plain_steps(steps, step_cost)

    def _plain_steps(self, steps: list[tree.Node], step_cost: int) -> Visit:
        for step in steps:
            if isinstance(step, tree.Select):
                if step.test:
                    # The path's own step has no cost in `has`.
                    step_cost -= _PATH_COST
                operation = ops.HAS if step.test else ops.FIELD
                error_cost = max(step_cost, 0)
                self._emit(operation, step.name, error_cost, cost=1 + step_cost)
            else:
                yield from self._index_key(step)
                self._emit(ops.INDEX, None, step_cost, cost=1 + step_cost)
            step_cost = 0

    def _optional_steps(
        self, steps: list[tree.Node], step_cost: int, in_branch: bool
    ) -> Visit:
        """Compile a path with optional steps; a step without a value ends the path."""
        jumps = [self._emit(ops.PATH_START, cost=step_cost)]
        for step in steps:
            optional = _is_optional_step(step)
            if isinstance(step, tree.Select) and step.test:
                self._emit(ops.PATH_HAS, (step.name, in_branch))
            elif isinstance(step, tree.Select):
                jumps.append(self._emit(ops.PATH_FIELD, (step.name, optional)))
            else:
                yield from self._index_key(step)
                jumps.append(self._emit(ops.PATH_INDEX, optional))
        last = steps[-1]
        if isinstance(last, tree.Select) and last.test:
            # An empty optional on the path means that the tested field does not exist.
            present = self._emit(ops.JUMP)
            end = len(self._code)
            self._emit(ops.OR_ELSE, a=False, b=end + 2)
            self._emit(ops.CONST, a=False)
            self._patch(present, a=len(self._code))
        else:
            self._emit(ops.PATH_END)
            end = len(self._code)
        for jump in jumps:
            self._patch(jump, b=end)

    def _index_key(self, step: tree.Node) -> Visit:
        index = cast("tree.Call", step).args[1]
        if _is_path(index) or _is_conditional(index):
            self._branches.add(id(index))
        yield index

    def _call(self, node: tree.Call) -> Visit:
        if tree.is_index(node):
            yield from self._path(node)
            return
        if node.function in _ALTERNATIVES and node.target is not None:
            yield from self._alternative(node, node.target)
            return
        since = len(self._code)
        args = node.args if node.target is None else [node.target, *node.args]
        starts = []
        for arg in args:
            starts.append(len(self._code))
            yield arg
        starts.append(len(self._code))
        constants = [
            self._constant_between(start, end) for start, end in pairwise(starts)
        ]
        if node.function in _CONVERSIONS and constants[0] is not _NOT_CONSTANT:
            function = implementation(node.function, node.overloads)
            self._fold(node, since, function(constants[0]))
            return
        if (
            node.overloads == ("in_list",)
            and type(constants[1]) is list
            and self._membership(since, constants[1])
        ):
            return
        self._check_pattern(node, constants)
        self._emit_call(node, args)

    def _emit_call(self, node: tree.Call, args: list[tree.Node]) -> None:
        bound = any(local.is_binding for local in self._locals)
        if node.function == "_+_" and bound and _may_be_list(args[0]):
            self._emit(ops.ADD_GUARD)
        called = (
            implementation(node.function, node.overloads),
            call_cost(node.function, node.overloads),
            call_steps(node.function),
        )
        operation = ops.CALL if args else ops.CALL_NOTHING
        self._emit(operation, called, len(args))

    def _alternative(self, node: tree.Call, optional: tree.Node) -> Visit:
        """Compile `or` and `orValue`, whose argument is only evaluated if needed."""
        yield optional
        jump = self._emit(ops.OR_ELSE, _ALTERNATIVES[node.function])
        yield node.args[0]
        self._patch(jump, b=len(self._code))

    def _membership(self, since: int, values: list[Any]) -> bool:
        """Compile membership in a constant list, if Kubernetes treats it as a set."""
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
        # Kubernetes compiles the first argument in parentheses of `matches` as a
        # pattern, even if it is the text.
        first_written = _NOT_CONSTANT
        if node.function == "matches" and isinstance(node.args[0], tree.Literal):
            first_written = node.args[0].value
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
        yield node.condition
        test = self._emit(ops.TERNARY)
        yield from self._branch(node.yes)
        jump = self._emit(ops.JUMP)
        self._patch(test, a=len(self._code))
        yield from self._branch(node.no)
        self._patch(test, b=len(self._code))
        self._patch(jump, a=len(self._code))

    def _branch(self, node: tree.Node) -> Visit:
        self._branches.add(id(node))
        yield node
        if not _is_path(node) and not _is_conditional(node) and _may_be_optional(node):
            self._emit(ops.REREAD)

    def _list(self, node: tree.ListLiteral) -> Visit:
        since = len(self._code)
        yield from node.elements
        pushed = self._code[since:]
        if not node.optional and _only_constants(pushed):
            self._fold(node, since, [value for _, value, *_ in pushed])
        else:
            self._emit(ops.LIST, len(node.elements), node.optional, cost=LIST_COST)

    def _map(self, node: tree.MapLiteral) -> Visit:
        since = len(self._code)
        for key, value in node.entries:
            yield key
            yield value
        pushed = self._code[since:]
        if not node.optional and _only_constants(pushed):
            made = make_map([value for _, value, *_ in pushed])
            del self._code[since:]
            self._emit(ops.CONST, made)
        else:
            count = 2 * len(node.entries)
            self._emit(ops.MAP, count, node.optional, cost=MAP_COST)

    def _enter(self, variable: str, *, is_binding: bool) -> int:
        slot = self._slot_count
        self._slot_count += 1
        self._locals.append(_Local(variable, slot, is_binding))
        return slot

    def _comprehension(self, node: tree.Comprehension) -> Visit:
        yield node.over
        locals_before = len(self._locals)
        slot = self._enter(node.variable, is_binding=False)
        if node.second:
            second = self._enter(node.second, is_binding=False)
            begin = self._emit(ops.LOOP_PAIRS, node.macro)
            following = self._emit(ops.LOOP_NEXT_PAIR, (slot, second))
        else:
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
            is_constant = self._constant(since) is not _NOT_CONSTANT
            makes_list = node.macro in ("map", "transformList")
            making = LIST_COST if makes_list and not is_constant else 0
            self._emit(ops.LOOP_STEP, (node.macro, slot), cost=making)
        self._emit(ops.JUMP, following)
        del self._locals[locals_before:]
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

    def _optional_map(self, node: tree.OptionalMap) -> Visit:
        self._emit(ops.COST_MARK)
        yield node.target
        slot = self._enter(node.variable, is_binding=True)
        begin = self._emit(ops.OPTIONAL_MAP, slot)
        yield node.body
        self._locals.pop()
        if not node.flat:
            self._emit(ops.WRAP)
        self._emit(ops.REREAD)
        self._patch(begin, b=len(self._code))


def _only_constants(pushed: list[Instruction]) -> bool:
    return all(operation == ops.CONST for operation, *_ in pushed)


def _is_optional_step(step: tree.Node) -> bool:
    if isinstance(step, tree.Select):
        return step.optional
    return cast("tree.Call", step).function == tree.OPTIONAL_INDEX


def _split_path(node: tree.Node) -> tuple[tree.Node, list[tree.Node]]:
    """Return the root of a path and its steps from the root outwards."""
    steps: list[tree.Node] = []
    root = node
    while isinstance(root, tree.Select) or tree.is_index(root):
        if isinstance(root, tree.Select) and root.test and steps:
            break  # the result of `has`, which is not part of the path
        steps.append(root)
        root = root.operand if isinstance(root, tree.Select) else root.args[0]
    steps.reverse()
    return root, steps
