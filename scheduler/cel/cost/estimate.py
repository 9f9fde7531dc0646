"""The highest cost that a selector can have, estimated without a device.

Kubernetes refuses to store a selector whose estimate exceeds its limit. So the estimate
follows Kubernetes step by step, with the same knowledge about sizes. A selector that is
too expensive in Kubernetes is never accepted here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from scheduler.cel.cost.call_estimates import CallEstimate, Operand, estimate_call
from scheduler.cel.cost.costs import LIST_COST, MAP_COST
from scheduler.cel.cost.paths import NO_PATH, SizePath, path_of
from scheduler.cel.cost.schema_sizes import size_at
from scheduler.cel.cost.sizes import (
    UNBOUNDED,
    UNKNOWN,
    ElementSizes,
    Size,
    exactly,
    plus,
    times,
)
from scheduler.cel.syntax import tree
from scheduler.cel.syntax.static_types import DEVICE, is_scalar
from scheduler.cel.syntax.visitor import Visit, Visitor

# The costs of a macro's expansion without its parts: its start, each round, its result.
_MACRO_COSTS = {
    "all": (0, 3, 1),
    "exists": (0, 4, 1),
    "exists_one": (0, 2, 2),
    "filter": (LIST_COST, LIST_COST + 3, 1),
    "map": (LIST_COST, LIST_COST + 2, 1),
    "transformList": (LIST_COST, LIST_COST + 2, 1),
    "transformMap": (MAP_COST, 3, 1),
    "transformMapEntry": (MAP_COST, 2, 1),
}
_MAP_MACROS = frozenset({"transformMap", "transformMapEntry"})


@dataclass(slots=True)
class _Variable:
    """The path, size and content of a loop variable or binding, as far as known."""

    path: SizePath
    size: Size | None
    entries: ElementSizes | None


class _Estimator(Visitor):
    """Costs and sizes of one tree, computed bottom up."""

    def __init__(self) -> None:
        self._paths: dict[int, SizePath] = {}
        self._sizes: dict[int, Size] = {}
        self._entries: dict[int, ElementSizes] = {}
        self._scopes: list[tuple[str, _Variable]] = []

    # Knowledge about values

    def _variable(self, node: tree.Node) -> _Variable | None:
        if isinstance(node, tree.Ident):
            for name, variable in reversed(self._scopes):
                if name == node.name:
                    return variable
        return None

    def _path(self, node: tree.Node) -> SizePath:
        variable = self._variable(node)
        return self._paths.get(id(node), NO_PATH) if variable is None else variable.path

    def _size(self, node: tree.Node) -> Size | None:
        known = self._sizes.get(id(node))
        if known is not None:
            return known
        if isinstance(node, tree.Literal):
            return exactly(
                len(node.value) if isinstance(node.value, str | bytes) else 1
            )
        if isinstance(node, tree.ListLiteral):
            return exactly(len(node.elements))
        if isinstance(node, tree.MapLiteral):
            return exactly(len(node.entries))
        by_schema = size_at(self._path(node).names())
        if by_schema is not None:
            return by_schema
        if is_scalar(node.type):
            return exactly(1)
        variable = self._variable(node)
        return variable.size if variable is not None else None

    def _size_or_unknown(self, node: tree.Node) -> Size:
        size = self._size(node)
        return UNKNOWN if size is None else size

    def _contents(self, node: tree.Node) -> ElementSizes | None:
        known = self._entries.get(id(node))
        if known is not None:
            return known
        variable = self._variable(node)
        return variable.entries if variable is not None else None

    def _set(
        self, node: tree.Node, size: Size | None, entries: ElementSizes | None = None
    ) -> None:
        if size is not None:
            self._sizes[id(node)] = size
        if entries is not None:
            self._entries[id(node)] = entries

    def _operand(self, node: tree.Node) -> Operand:
        return Operand(node, self._path(node).names(), self._size(node))

    # Costs

    def _literal(self, node: tree.Literal) -> Visit:
        del node
        return 0
        yield

    def _ident(self, node: tree.Ident) -> Visit:
        variable = self._variable(node)
        self._paths[id(node)] = (
            path_of(node.name) if variable is None else variable.path
        )
        return 1
        yield

    def _select(self, node: tree.Select) -> Visit:
        name = tree.qualified_name(node)
        if name is not None and node.type.kind == "type":
            # A qualified type name is a single name, not a path.
            self._paths[id(node)] = path_of(name)
            return 1
        cost = yield node.operand
        if node.test:
            return cost
        if node.optional:
            self._set(node, self._size(node))
            return plus(cost, 1)
        kind = node.operand.type
        self._paths[id(node)] = self._path(node.operand).append(node.name)
        return plus(cost, 1) if kind.kind == "map" or kind == DEVICE else cost

    def _call(self, node: tree.Call) -> Visit:
        arg_costs: list[int] = []
        for arg in node.args:
            cost = yield arg
            arg_costs.append(cost)
        if node.function == "dyn":
            self._set(node, self._size(node.args[0]), self._contents(node.args[0]))
            return plus(1, *arg_costs)
        operands = [self._operand(arg) for arg in node.args]
        target_cost = 0
        target = None
        if node.target is not None:
            target_cost = yield node.target
            target = self._operand(node.target)
        cost = 0
        size: Size | None = None
        for overload in node.overloads:
            estimate = self._overload(node, overload, target, operands)
            cost = max(cost, estimate.cost)
            if estimate.size is not None:
                size = estimate.size if size is None else size.union(estimate.size)
            if overload in ("index_list", "index_map"):
                contents = self._contents(node.args[0])
                size = None if contents is None else contents.value
                part = "@items" if overload == "index_list" else "@values"
                self._paths[id(node)] = self._path(node.args[0]).append(part)
            if size is None:
                size = self._size(node)
        self._set(node, size)
        return plus(cost, target_cost, *arg_costs)

    def _overload(
        self,
        node: tree.Call,
        overload: str,
        target: Operand | None,
        operands: list[Operand],
    ) -> CallEstimate:
        if overload in ("add_string", "add_bytes", "add_list"):
            left, right = self._contents(node.args[0]), self._contents(node.args[1])
            if left is not None:
                self._set(node, None, left.union(right))
        return estimate_call(node.function, overload, target, operands)

    def _logic(self, node: tree.Logic) -> Visit:
        cost = 0
        for term in node.terms:
            cost = plus(cost, (yield term))
        return cost

    def _ternary(self, node: tree.Ternary) -> Visit:
        condition = yield node.condition
        yes = yield node.yes
        no = yield node.no
        contents = self._contents(node.yes)
        size = self._size_or_unknown(node.yes).union(self._size_or_unknown(node.no))
        self._set(
            node,
            size,
            None if contents is None else contents.union(self._contents(node.no)),
        )
        return plus(condition, max(yes, no))

    def _list(self, node: tree.ListLiteral) -> Visit:
        cost = LIST_COST
        value = Size(UNBOUNDED if node.elements else 0, 0)
        for element in node.elements:
            cost = plus(cost, (yield element))
            value = value.union(self._size_or_unknown(element))
        self._set(node, None, ElementSizes("list", exactly(1), value))
        return cost

    def _map(self, node: tree.MapLiteral) -> Visit:
        cost = MAP_COST
        key_size = value_size = Size(UNBOUNDED if node.entries else 0, 0)
        for key, value in node.entries:
            cost = plus(cost, (yield key))
            cost = plus(cost, (yield value))
            key_size = key_size.union(self._size_or_unknown(key))
            value_size = value_size.union(self._size_or_unknown(value))
        self._set(node, None, ElementSizes("map", key_size, value_size))
        return cost

    def _variables(self, node: tree.Comprehension) -> list[tuple[str, _Variable]]:
        """Return the variables of a loop."""
        contents = self._contents(node.over)
        is_list = node.over.type.kind == "list"
        key_size = value_size = None
        if contents is not None:
            is_list = contents.container == "list"
            key_size, value_size = contents.key, contents.value
        path = self._path(node.over)
        value_part = "@items" if is_list else "@values"
        if not node.second:
            if is_list:
                element = _Variable(path.append(value_part), value_size, None)
            else:
                element = _Variable(path.append("@keys"), key_size, None)
            return [(node.variable, element)]
        key_path = path.append("@indices" if is_list else "@keys")
        key = _Variable(key_path, key_size, None)
        value = _Variable(path.append(value_part), value_size, None)
        return [(node.variable, key), (node.second, value)]

    def _comprehension(self, node: tree.Comprehension) -> Visit:
        cost = yield node.over
        scopes = len(self._scopes)
        self._scopes += self._variables(node)
        each = 0 if node.predicate is None else (yield node.predicate)
        made: Size | None = None
        if node.transform is not None:
            each = plus(each, (yield node.transform))
            made = self._size_or_unknown(node.transform)
        elif node.macro == "filter":
            # The step puts the loop variable into a list. Its size is looked up as for
            # other uses of the variable.
            variable = tree.Ident(node.at, node.variable)
            variable.type = node.type.params[0]
            yield variable
            made = self._size_or_unknown(variable)
        del self._scopes[scopes:]
        start, round_cost, result = _MACRO_COSTS[node.macro]
        over = self._size_or_unknown(node.over)
        if made is None:
            self._set(node, exactly(1))
        elif node.macro in _MAP_MACROS:
            self._set(node, over)
        else:
            # The result starts as an empty list, and so does the range of its elements' sizes.
            self._set(
                node, over, ElementSizes("list", exactly(1), made.union(exactly(0)))
            )
        return plus(cost, start, result, times(over.high, plus(each, round_cost)))

    def _bind(self, node: tree.Bind) -> Visit:
        cost = yield node.value
        variable = _Variable(
            self._path(node.value), self._size(node.value), self._contents(node.value)
        )
        self._scopes.append((node.variable, variable))
        body = yield node.body
        size, contents = self._size(node.body), self._contents(node.body)
        self._scopes.pop()
        self._set(node, size, contents)
        # Kubernetes expands a binding to a loop over an empty list. Only the list has a
        # cost.
        return plus(LIST_COST, cost, body)

    def _optional_map(self, node: tree.OptionalMap) -> Visit:
        """Estimate `target.hasValue() ? optional.of(body) : optional.none()`.

        The expansion evaluates the target twice: for `hasValue`, and as `value` of a binding.
        """
        target = yield node.target
        value_type = node.target.type
        size = exactly(1) if is_scalar(value_type) else None
        self._scopes.append((node.variable, _Variable(NO_PATH, size, None)))
        body = yield node.body
        made = self._size_or_unknown(node.body)
        self._scopes.pop()
        if not node.flat:
            body = plus(body, 1)
            made = exactly(1) if is_scalar(node.type) else UNKNOWN
        nothing = exactly(1) if is_scalar(node.type) else UNKNOWN
        self._set(node, made.union(nothing))
        mapped = plus(LIST_COST, target, 1, body)
        return plus(target, 1, max(mapped, 1))


def estimate_cost(root: tree.Node) -> int:
    """Estimate the cost of one evaluation.

    Args:
        root: a checked tree.

    Returns:
        CEL cost units, 2^64-1 at most.

    """
    return cast("int", _Estimator().walk(root))
