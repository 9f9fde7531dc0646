"""Reject every selector that the compiler of the workload cluster would reject.

cel-python has no checker. It finds an unknown function or a wrong type only when
evaluation reaches it, and then the device does not match. Here a typo is an error with
its line and column. The checker also writes the type and overloads of each node into
the tree, because the cost of a call depends on them.
"""

from __future__ import annotations

import difflib

from scheduler.cel.checking.declarations import (
    DEVICE_FIELDS,
    FOREIGN_FUNCTIONS,
    FUNCTIONS,
    VARIABLES,
)
from scheduler.cel.checking.extension_libraries import MAP_INSERT
from scheduler.cel.checking.format_calls import check_format_call
from scheduler.cel.checking.overloads import Overload
from scheduler.cel.errors import SelectorError
from scheduler.cel.runtime.format_clauses import FormatError
from scheduler.cel.syntax import static_types, tree
from scheduler.cel.syntax.lexer import refuse
from scheduler.cel.syntax.static_types import (
    ANY,
    BOOL,
    DYN,
    INT,
    OPTIONAL_KIND,
    STRING,
    Type,
    Unifier,
    is_dyn,
    is_param,
    list_of,
    map_of,
    optional_of,
    surely_differ,
    unwrapped,
)
from scheduler.cel.syntax.visitor import Visit, Visitor

_OPERATOR_SIGNS = {
    name: name.strip("_@") for name in FUNCTIONS if "_" in name or "@" in name
}
_CALLABLE = [name for name in FUNCTIONS if name not in _OPERATOR_SIGNS]
# Types of operands that users often compare with text or with operators.
_WRAPPED_KINDS = {"kubernetes.Quantity": "quantity", "kubernetes.Semver": "semver"}
# In a call of this function, lists may mix types.
_MIXING_FUNCTION = "format"


class Checker(Visitor):
    """Computes and checks the types of one selector."""

    def __init__(self, text: str, *, lenient_calls: bool = False) -> None:
        self._text = text
        self._lenient = lenient_calls
        self._unifier = Unifier()
        self._scopes: list[tuple[str, Type]] = []
        self._seen: list[tree.Node] = []
        self._literals: list[tree.ListLiteral | tree.MapLiteral] = []
        self._mixing_calls = 0

    def check(self, root: tree.Node) -> None:
        """Check the whole selector and write types and overloads into its tree.

        Raises:
            SelectorError: an unknown name, a call that fits no declaration, or a result that
                is no bool.

        """
        self.walk(root)
        for node in self._seen:
            node.type = self._unifier.resolve(node.type, final=True)
        if root.type not in (BOOL, ANY):
            raise SelectorError(
                f"a selector must return a bool, and this one returns a {root.type}"
            )
        for literal in self._literals:
            self._check_literal(literal)
        for node in self._seen:
            if isinstance(node, tree.Call) and node.function == _MIXING_FUNCTION:
                self._check_format(node)

    def _refuse(self, node: tree.Node, problem: str) -> SelectorError:
        return refuse(self._text, node.at, problem)

    def _visit(self, node: tree.Node) -> Visit:
        self._seen.append(node)
        node.type = yield from super()._visit(node)
        return node.type

    def _literal(self, node: tree.Literal) -> Visit:
        return node.literal_type
        yield  # makes this a generator, like every other visit

    def _lookup(self, name: str) -> Type | None:
        for known, kind in reversed(self._scopes):
            if known == name:
                return kind
        return VARIABLES.get(name)

    def _ident(self, node: tree.Ident) -> Visit:
        kind = self._lookup(node.name)
        if node.rooted and any(known == node.name for known, _ in self._scopes):
            raise self._refuse(
                node, f".{node.name} is hidden by a variable of the same name"
            )
        if kind is None:
            raise self._refuse(
                node, f"unknown name {node.name}; a selector can read only 'device'"
            )
        return kind
        yield

    def _select(self, node: tree.Select) -> Visit:
        name = tree.qualified_name(node)
        if name is not None and (kind := self._lookup(name)) is not None:
            return kind
        operand = self._unifier.resolve((yield node.operand))
        result = self._unifier.resolve(self._field(node, unwrapped(operand)))
        if node.test:
            return BOOL
        if node.optional or operand.kind == OPTIONAL_KIND:
            return optional_of(result)
        return result

    def _field(self, node: tree.Select, operand: Type) -> Type:
        if operand.kind == "map":
            return operand.params[1]
        if operand == static_types.DEVICE:
            if node.name in DEVICE_FIELDS:
                return DEVICE_FIELDS[node.name]
            raise self._refuse(
                node,
                f"device has no field {node.name}; it has {', '.join(DEVICE_FIELDS)}",
            )
        if is_param(operand):
            self._unifier.unify((DYN,), (operand,))
            return DYN
        if is_dyn(operand):
            return DYN
        raise self._refuse(
            node, f"a {operand} has no fields, so .{node.name} cannot be read"
        )

    def _call(self, node: tree.Call) -> Visit:
        if node.target is not None:
            prefix = tree.qualified_name(node.target)
            name = f"{prefix}.{node.function}"
            # `sets.contains(a, b)` is a function with a dot in its name.
            if prefix is not None and (name in FUNCTIONS or name in FOREIGN_FUNCTIONS):
                node.function, node.target = name, None
        if node.function == "has" and node.target is None:
            self._rewrite_lenient_has(node)
        declared = FUNCTIONS.get(node.function)
        if declared is None:
            raise self._unknown(node, node.function)
        self._mixing_calls += node.function == _MIXING_FUNCTION
        args: list[Type] = []
        for arg in node.args:
            kind = yield arg
            args.append(kind)
        receiver = None if node.target is None else (yield node.target)
        self._mixing_calls -= node.function == _MIXING_FUNCTION
        return self._resolve(node, declared, receiver, args)

    def _rewrite_lenient_has(self, node: tree.Call) -> None:
        """In the lenient dialect, rewrite `has(x[key])` to `key in x`.

        CEL has no such form.
        """
        arg = node.args[0] if len(node.args) == 1 else None
        if (
            not self._lenient
            or not isinstance(arg, tree.Call)
            or arg.function != tree.INDEX
        ):
            raise self._refuse(
                node,
                "has() takes one field, such as "
                "has(device.attributes['example.com'].model)",
            )
        container, key = arg.args
        node.function, node.args = "@in", [key, container]

    def _resolve(
        self,
        node: tree.Call,
        declared: tuple[Overload, ...],
        receiver: Type | None,
        args: list[Type],
    ) -> Type:
        types = tuple(args if receiver is None else [receiver, *args])
        fitting, result = self._fitting(declared, receiver is not None, types)
        if result is None and self._lenient:
            # The lenient dialect accepts member calls for global functions and vice
            # versa.
            fitting, result = self._fitting(declared, receiver is None, types)
        if result is None:
            raise self._refuse(node, self._misfit(node, declared, receiver, types))
        node.overloads = fitting
        return result

    def _fitting(
        self, declared: tuple[Overload, ...], member: bool, types: tuple[Type, ...]
    ) -> tuple[tuple[str, ...], Type | None]:
        result: Type | None = None
        fitting = []
        for overload in declared:
            if overload.member != member or len(overload.args) != len(types):
                continue
            if any(map(surely_differ, types, overload.args)):
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
        """Return the types of an overload with fresh parameters.

        Two calls of one function must not share inferred types.
        """
        if not overload.generic:
            return overload.args, overload.result
        fresh: dict[Type, Type] = {}

        def renew(kind: Type) -> Type:
            if is_param(kind):
                return fresh.setdefault(kind, self._unifier.fresh())
            if not kind.params:
                return kind
            return Type(kind.kind, tuple(map(renew, kind.params)))

        return tuple(map(renew, overload.args)), renew(overload.result)

    def _unknown(self, node: tree.Call, function: str) -> SelectorError:
        reason = FOREIGN_FUNCTIONS.get(function)
        if reason is not None:
            problem = f"function {function} cannot be used: {reason}"
            return self._refuse(node, f"{problem} (as in Kubernetes 1.35)")
        close = difflib.get_close_matches(function, _CALLABLE, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return self._refuse(node, f"unknown function {function}{hint}")

    def _misfit(
        self,
        node: tree.Call,
        declared: tuple[Overload, ...],
        receiver: Type | None,
        types: tuple[Type, ...],
    ) -> str:
        shown = [str(self._unifier.resolve(kind, final=True)) for kind in types]
        sign = _OPERATOR_SIGNS.get(node.function)
        if sign is not None:
            return f"operator {sign} does not take {' and '.join(shown)}{_hint(shown)}"
        if not any(overload.member == (receiver is not None) for overload in declared):
            form = f"x.{node.function}(...)"
            if receiver is not None:
                form = f"{node.function}(x, ...)"
            return f"{node.function} must be called as {form}"
        where = f" on {shown[0]}" if receiver is not None else ""
        given = shown[1:] if receiver is not None else shown
        return f"{node.function}{where} does not take ({', '.join(given)})"

    def _logic(self, node: tree.Logic) -> Visit:
        for term in node.terms:
            kind = yield term
            if not self._unifier.unify((kind,), (BOOL,)):
                shown = self._unifier.resolve(kind, final=True)
                raise self._refuse(term, f"{node.operator} takes bools, not {shown}")
        return BOOL

    def _ternary(self, node: tree.Ternary) -> Visit:
        condition = yield node.condition
        yes = yield node.yes
        no = yield node.no
        return self._conditional(node, condition, yes, no)

    def _conditional(
        self, node: tree.Node, condition: Type, yes: Type, no: Type
    ) -> Type:
        types = (condition, yes, no)
        _, result = self._fitting(FUNCTIONS["_?_:_"], member=False, types=types)
        if result is None:
            shown = [str(self._unifier.resolve(kind, final=True)) for kind in types]
            raise self._refuse(
                node,
                "? : takes a bool and two values of one type, "
                f"not {shown[0]}, {shown[1]} and {shown[2]}",
            )
        return result

    def _joined(self, before: Type | None, kind: Type) -> Type:
        """Return the type of a collection's content, `dyn` if it mixes types."""
        if before is None:
            return kind
        joined = self._unifier.join(before, kind)
        return DYN if joined is None else joined

    def _content(self, node: tree.Node, kind: Type, *, optional: bool) -> Type:
        """Return the type of an element or entry, which is unwrapped if it is optional."""
        if not optional:
            return kind
        kind = self._unifier.resolve(kind)
        if kind.kind != OPTIONAL_KIND and not is_dyn(kind):
            raise self._refuse(
                node, f"behind '?' there must be an optional value, not a {kind}"
            )
        return unwrapped(kind)

    def _list(self, node: tree.ListLiteral) -> Visit:
        self._note_literal(node)
        element: Type | None = None
        for at, each in enumerate(node.elements):
            kind = yield each
            content = self._content(each, kind, optional=at in node.optional)
            element = self._joined(element, content)
        return list_of(element or self._unifier.fresh())

    def _map(self, node: tree.MapLiteral) -> Visit:
        self._note_literal(node)
        key: Type | None = None
        value: Type | None = None
        for at, (each_key, each_value) in enumerate(node.entries):
            key = self._joined(key, (yield each_key))
            kind = yield each_value
            content = self._content(each_value, kind, optional=at in node.optional)
            value = self._joined(value, content)
        return map_of(key or self._unifier.fresh(), value or self._unifier.fresh())

    def _note_literal(self, node: tree.ListLiteral | tree.MapLiteral) -> None:
        if not self._mixing_calls:
            self._literals.append(node)

    def _variables(self, node: tree.Comprehension, over: Type) -> tuple[Type, Type]:
        """Return the types of the two variables of a loop."""
        over = self._unifier.resolve(over)
        if over.kind == "map":
            return over.params[0], over.params[1]
        if over.kind == "list":
            element = over.params[0]
            return (INT if node.second else element), element
        # Kubernetes loops over `dyn`, but not over an attribute, which it calls `any`.
        if over == DYN or is_param(over):
            self._unifier.unify((DYN,), (over,))
            return DYN, DYN
        found = "an attribute" if over == ANY else str(over)
        raise self._refuse(node, f"{node.macro} loops over a list or map, not {found}")

    def _comprehension(self, node: tree.Comprehension) -> Visit:
        over = yield node.over
        first, second = self._variables(node, over)
        scopes = len(self._scopes)
        self._scopes.append((node.variable, first))
        if node.second:
            self._scopes.append((node.second, second))
        if node.predicate is not None:
            kind = yield node.predicate
            if not self._unifier.unify((BOOL,), (kind,)):
                shown = self._unifier.resolve(kind, final=True)
                raise self._refuse(
                    node.predicate,
                    f"the condition of {node.macro} must be a bool, not {shown}",
                )
        result = BOOL
        if node.transform is not None:
            transform = yield node.transform
            result = self._transformed(node, first, transform)
        elif node.macro == "filter":
            result = list_of(first)
        del self._scopes[scopes:]
        return self._unifier.resolve(result)

    def _transformed(
        self, node: tree.Comprehension, first: Type, transform: Type
    ) -> Type:
        if node.macro not in ("transformMap", "transformMapEntry"):
            return list_of(transform)
        made = map_of(self._unifier.fresh(), self._unifier.fresh())
        types: tuple[Type, ...] = (made, first, transform)
        if node.macro == "transformMapEntry":
            types = (made, transform)
        _, result = self._fitting(FUNCTIONS[MAP_INSERT], member=False, types=types)
        if result is None:
            shown = self._unifier.resolve(transform, final=True)
            raise self._refuse(
                node, f"{node.macro} takes entries such as {{key: value}}, not {shown}"
            )
        return made

    def _bind(self, node: tree.Bind) -> Visit:
        value = yield node.value
        self._scopes.append((node.variable, value))
        result = yield node.body
        self._scopes.pop()
        return self._unifier.resolve(result)

    def _optional_map(self, node: tree.OptionalMap) -> Visit:
        """Check `target.hasValue() ? optional.of(body) : optional.none()`."""
        target = yield node.target
        name = "optFlatMap" if node.flat else "optMap"
        condition = self._of_optional(node, name, "hasValue", target)
        value = self._of_optional(node, name, "value", target)
        self._scopes.append((node.variable, value))
        body = self._unifier.resolve((yield node.body))
        self._scopes.pop()
        if not node.flat:
            body = optional_of(body)
        none = optional_of(self._unifier.fresh())
        return self._conditional(node, condition, body, none)

    def _of_optional(
        self, node: tree.Node, name: str, function: str, target: Type
    ) -> Type:
        _, result = self._fitting(FUNCTIONS[function], member=True, types=(target,))
        if result is None:
            shown = self._unifier.resolve(target, final=True)
            raise self._refuse(node, f"{name} takes an optional value, not {shown}")
        return result

    def _check_literal(self, node: tree.ListLiteral | tree.MapLiteral) -> None:
        """Reject a list or map that mixes types, also one that mixes with `dyn`."""
        if isinstance(node, tree.ListLiteral):
            self._check_uniform(node.elements, node.optional)
            return
        self._check_uniform([key for key, _ in node.entries], frozenset())
        self._check_uniform([value for _, value in node.entries], node.optional)

    def _check_uniform(self, nodes: list[tree.Node], optional: frozenset[int]) -> None:
        first: Type | None = None
        for at, node in enumerate(nodes):
            kind = node.type
            if at in optional:
                if kind.kind != OPTIONAL_KIND:
                    raise self._refuse(
                        node,
                        "the type of a value behind '?' must be known to be optional",
                    )
                kind = unwrapped(kind)
            if first is not None and kind != first:
                raise self._refuse(
                    node,
                    f"a list or map holds values of one type, not {first} and {kind}",
                )
            first = kind

    def _check_format(self, node: tree.Call) -> None:
        target = node.target
        if not isinstance(target, tree.Literal) or target.literal_type != STRING:
            return
        if isinstance(node.args[0], tree.ListLiteral):
            try:
                check_format_call(target.value, node.args[0].elements)
            except FormatError as error:
                raise self._refuse(node, str(error)) from None


def _hint(shown: list[str]) -> str:
    """Return how to compare a quantity or a version, if an operand is one."""
    for kind, wrap in _WRAPPED_KINDS.items():
        if kind in shown:
            return (
                f"; wrap text in {wrap}('...') and compare with isGreaterThan, "
                "isLessThan or compareTo"
            )
    return ""
