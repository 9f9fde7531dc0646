"""Refuse, before first use, every selector that the workload cluster's compiler would refuse.

cel-python has no checker: it finds an unknown function or a wrong type only when evaluation reaches it, and then the device
merely does not match. Here a typo is an error with its line and column. The checker also writes each node's type and overloads into the
tree, because the cost of a call depends on them.
"""

from __future__ import annotations

import difflib

from scheduler.cel.checking.declarations import DEVICE_FIELDS, FUNCTIONS, UNSUPPORTED, VARIABLES, Overload
from scheduler.cel.errors import SelectorError
from scheduler.cel.syntax import static_types, tree
from scheduler.cel.syntax.lexer import refuse
from scheduler.cel.syntax.static_types import ANY, BOOL, DYN, Type, Unifier, is_dyn, is_param, list_of, map_of
from scheduler.cel.syntax.visitor import Visit, Visitor

_OPERATOR_SIGNS = {name: name.strip("_@") for name in FUNCTIONS if "_" in name or "@" in name}


class Checker(Visitor):
    """Types of one selector."""

    def __init__(self, text: str, *, lenient_calls: bool = False) -> None:
        self._text = text
        self._lenient = lenient_calls
        self._unifier = Unifier()
        self._scopes: list[tuple[str, Type]] = []
        self._seen: list[tree.Node] = []

    def check(self, root: tree.Node) -> None:
        """Check the whole selector and write types and overloads into its tree.

        Raises:
            SelectorError: an unknown name, a call nothing fits, or a result that is no bool.

        """
        self.walk(root)
        for node in self._seen:
            node.type = self._unifier.resolve(node.type, final=True)
        if root.type not in (BOOL, ANY):
            raise SelectorError(f"a selector must give a bool, this one gives {root.type}")
        self._check_literals()

    def _refuse(self, node: tree.Node, problem: str) -> SelectorError:
        return refuse(self._text, node.at, problem)

    def _visit(self, node: tree.Node) -> Visit:
        self._seen.append(node)
        node.type = yield from super()._visit(node)
        return node.type

    def _literal(self, node: tree.Literal) -> Visit:
        return node.literal_type
        yield  # makes this a generator, as every visit is

    def _lookup(self, name: str) -> Type | None:
        for known, kind in reversed(self._scopes):
            if known == name:
                return kind
        return VARIABLES.get(name)

    def _ident(self, node: tree.Ident) -> Visit:
        kind = self._lookup(node.name)
        if node.rooted and any(known == node.name for known, _ in self._scopes):
            raise self._refuse(node, f".{node.name} is hidden by a variable of the same name")
        if kind is None:
            raise self._refuse(node, f"unknown name {node.name}; a selector sees only 'device'")
        return kind
        yield

    def _select(self, node: tree.Select) -> Visit:
        name = tree.qualified_name(node)
        if name is not None and (kind := self._lookup(name)) is not None:
            return kind
        operand = self._unifier.resolve((yield node.operand))
        result = self._field(node, operand)
        return BOOL if node.test else self._unifier.resolve(result)

    def _field(self, node: tree.Select, operand: Type) -> Type:
        if operand.kind == "map":
            return operand.params[1]
        if operand == static_types.DEVICE:
            if node.name in DEVICE_FIELDS:
                return DEVICE_FIELDS[node.name]
            raise self._refuse(node, f"device has no field {node.name}; it has {', '.join(DEVICE_FIELDS)}")
        if is_param(operand):
            self._unifier.unify((DYN,), (operand,))
            return DYN
        if is_dyn(operand):
            return DYN
        raise self._refuse(node, f"a {operand} has no fields, so .{node.name} means nothing")

    def _call(self, node: tree.Call) -> Visit:
        if node.target is not None:
            prefix = tree.qualified_name(node.target)
            # `sets.contains(a, b)` is a function with a dot in its name, not a call on a value named sets.
            if prefix is not None and (f"{prefix}.{node.function}" in FUNCTIONS or f"{prefix}.{node.function}" in UNSUPPORTED):
                node.function, node.target = f"{prefix}.{node.function}", None
        if node.function == "has" and node.target is None:
            self._rewrite_lenient_has(node)
        declared = FUNCTIONS.get(node.function)
        if declared is None:
            if node.target is not None and node.function in UNSUPPORTED:
                yield node.target  # ip('...').isLoopback() is refused because of ip
            raise self._unknown(node, node.function)
        args: list[Type] = []
        for arg in node.args:
            args += [(yield arg)]
        receiver = None if node.target is None else (yield node.target)
        return self._resolve(node, declared, receiver, args)

    def _rewrite_lenient_has(self, node: tree.Call) -> None:
        """Read `has(x[key])` as `key in x` in the lenient dialect; CEL has no such form."""
        arg = node.args[0] if len(node.args) == 1 else None
        if self._lenient and isinstance(arg, tree.Call) and arg.function == "_[_]":
            container, key = arg.args
            node.function, node.args = "@in", [key, container]
        else:
            raise self._refuse(node, "has() takes one field selection, such as has(device.attributes['example.com'].model)")

    def _resolve(self, node: tree.Call, declared: tuple[Overload, ...], receiver: Type | None, args: list[Type]) -> Type:
        types = tuple(args if receiver is None else [receiver, *args])
        fitting, result = self._fitting(declared, receiver is not None, types)
        if result is None and self._lenient:
            # The lenient dialect takes member calls for global ones and the other way round.
            fitting, result = self._fitting(declared, receiver is None, types)
        if result is None:
            raise self._refuse(node, self._misfit(node, declared, receiver, types))
        node.overloads = fitting
        return result

    def _fitting(self, declared: tuple[Overload, ...], member: bool, types: tuple[Type, ...]) -> tuple[tuple[str, ...], Type | None]:
        result: Type | None = None
        fitting = []
        for overload in declared:
            if overload.member != member or len(overload.args) != len(types):
                continue
            wanted, given = self._instance(overload)
            if not self._unifier.unify(types, wanted):
                continue
            fitting.append(overload.id)
            given = self._unifier.resolve(given)
            if result is None:
                result = given
            elif not is_dyn(result) and result != given:
                result = DYN
        return tuple(fitting), result

    def _instance(self, overload: Overload) -> tuple[tuple[Type, ...], Type]:
        """The overload's types with fresh parameters, so that two calls do not share inferred types."""
        if not overload.generic:
            return overload.args, overload.result
        fresh: dict[Type, Type] = {}

        def renew(kind: Type) -> Type:
            if is_param(kind):
                return fresh.setdefault(kind, self._unifier.fresh())
            return Type(kind.kind, tuple(map(renew, kind.params))) if kind.params else kind

        return tuple(map(renew, overload.args)), renew(overload.result)

    def _unknown(self, node: tree.Node, function: str) -> SelectorError:
        if function in UNSUPPORTED:
            return self._refuse(node, f"function {function} is not supported by the fleet scheduler")
        close = difflib.get_close_matches(function, [name for name in FUNCTIONS if name not in _OPERATOR_SIGNS], n=1)
        return self._refuse(node, f"unknown function {function}" + (f"; did you mean {close[0]}?" if close else ""))

    def _misfit(self, node: tree.Call, declared: tuple[Overload, ...], receiver: Type | None, types: tuple[Type, ...]) -> str:
        shown = [str(self._unifier.resolve(kind, final=True)) for kind in types]
        sign = _OPERATOR_SIGNS.get(node.function)
        if sign is not None:
            problem = f"operator {sign} does not take {' and '.join(shown)}"
            if any(kind in ("kubernetes.Quantity", "kubernetes.Semver") for kind in shown):
                wrap = "quantity" if "kubernetes.Quantity" in shown else "semver"
                problem += f"; wrap text in {wrap}('...') and compare with isGreaterThan, isLessThan or compareTo"
            return problem
        if not any(overload.member == (receiver is not None) for overload in declared):
            form = f"{node.function}(x, ...)" if receiver is not None else f"x.{node.function}(...)"
            return f"{node.function} must be called as {form}"
        where = f" on {shown[0]}" if receiver is not None else ""
        given = shown[1:] if receiver is not None else shown
        return f"{node.function}{where} does not take ({', '.join(given)})"

    def _logic(self, node: tree.Logic) -> Visit:
        for term in node.terms:
            kind = yield term
            if not self._unifier.unify((kind,), (BOOL,)):
                raise self._refuse(term, f"{node.operator} takes bools, not {self._unifier.resolve(kind, final=True)}")
        return BOOL

    def _ternary(self, node: tree.Ternary) -> Visit:
        types = ((yield node.condition), (yield node.yes), (yield node.no))
        fitting, result = self._fitting(FUNCTIONS["_?_:_"], member=False, types=types)
        if result is None:
            shown = [str(self._unifier.resolve(kind, final=True)) for kind in types]
            raise self._refuse(node, f"? : takes a bool and two values of one type, not {shown[0]}, {shown[1]} and {shown[2]}")
        del fitting
        return result

    def _joined(self, node: tree.Node, before: Type | None, kind: Type) -> Type:
        if before is None:
            return kind
        joined = self._unifier.join(before, kind)
        if joined is None:
            raise self._mixture(node, before, kind)
        return joined

    def _mixture(self, node: tree.Node, before: Type, kind: Type) -> SelectorError:
        first, second = (str(self._unifier.resolve(each, final=True)) for each in (before, kind))
        return self._refuse(node, f"a list or map holds values of one type, not {first} and {second}")

    def _list(self, node: tree.ListLiteral) -> Visit:
        element: Type | None = None
        for each in node.elements:
            element = self._joined(each, element, (yield each))
        return list_of(element or self._unifier.fresh())

    def _map(self, node: tree.MapLiteral) -> Visit:
        key: Type | None = None
        value: Type | None = None
        for each_key, each_value in node.entries:
            key = self._joined(each_key, key, (yield each_key))
            value = self._joined(each_value, value, (yield each_value))
        return map_of(key or self._unifier.fresh(), value or self._unifier.fresh())

    def _element(self, node: tree.Comprehension, over: Type) -> Type:
        over = self._unifier.resolve(over)
        if over.kind in ("list", "map"):
            return over.params[0]
        # Kubernetes loops over `dyn`, but not over an attribute, which it calls `any`.
        if over == DYN or is_param(over):
            self._unifier.unify((DYN,), (over,))
            return DYN
        raise self._refuse(node, f"{node.macro} loops over a list or map, not {'an attribute' if over == ANY else over}")

    def _comprehension(self, node: tree.Comprehension) -> Visit:
        element = self._element(node, (yield node.over))
        self._scopes.append((node.variable, element))
        if node.predicate is not None:
            kind = yield node.predicate
            if not self._unifier.unify((BOOL,), (kind,)):
                raise self._refuse(
                    node.predicate, f"the condition of {node.macro} must be a bool, not {self._unifier.resolve(kind, final=True)}"
                )
        result = BOOL
        if node.transform is not None:
            result = list_of((yield node.transform))
        elif node.macro == "filter":
            result = list_of(element)
        self._scopes.pop()
        return self._unifier.resolve(result)

    def _bind(self, node: tree.Bind) -> Visit:
        value = yield node.value
        self._scopes.append((node.variable, value))
        result = yield node.body
        self._scopes.pop()
        return self._unifier.resolve(result)

    def _check_literals(self) -> None:
        """Refuse mixtures that only `dyn` made possible; Kubernetes does not take them in a literal either."""
        for node in self._seen:
            if isinstance(node, tree.ListLiteral):
                groups = [node.elements]
            elif isinstance(node, tree.MapLiteral):
                groups = [[key for key, _ in node.entries], [value for _, value in node.entries]]
            else:
                continue
            for group in groups:
                for each in group[1:]:
                    if each.type != group[0].type:
                        raise self._mixture(each, group[0].type, each.type)
