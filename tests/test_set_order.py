"""Code of workflows does not depend on the order of a set.

The order differs between processes, so a replay in another process would differ. The
syntax tree shows which expressions are sets: displays, comprehensions, calls and their
operators, and names, parameters, attributes and functions that are assigned or
annotated as sets.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Renderers and clients run in activities. From `activities`, workflows import only
# messages and activity names.
PARTS = ("api_types", "scheduler", "workflows")
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text()
    for part in PARTS
    for path in sorted((ROOT / part).rglob("*.py"))
}
SET_TYPES = ("set", "frozenset", "Set", "AbstractSet", "MutableSet")
SET_METHODS = ("union", "intersection", "difference", "symmetric_difference", "copy")
SET_OPERATORS = (ast.Sub, ast.BitOr, ast.BitAnd, ast.BitXor)
# The results of these functions do not depend on the order; `min` and `max` only
# without a key.
UNORDERED = ("sorted", "set", "frozenset", "any", "all", "sum", "len", "min", "max")
ORDERED = (
    "list",
    "tuple",
    "enumerate",
    "iter",
    "next",
    "zip",
    "map",
    "filter",
    "dict",
    "reversed",
    "chain",
)
ORDERED_METHODS = ("join", "extend", "fromkeys", "from_iterable", "chain")


def is_set_annotation(node: ast.expr | None) -> bool:
    if isinstance(node, ast.BinOp):  # such as set[str] | None
        return is_set_annotation(node.left) or is_set_annotation(node.right)
    if isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name) and node.id in SET_TYPES


@dataclass
class Known:
    """Names of sets.

    Functions and attributes count if all of the same name are sets; `by_class` has the
    attributes of each class.
    """

    functions: frozenset[str]
    attributes: frozenset[str]
    by_class: Mapping[str, frozenset[str]]


@dataclass
class Scope:
    """A function or a module, with its names that are sets."""

    known: Known
    owner: str = ""
    names: set[str] = field(default_factory=set)

    def is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Name(id=name):
                return name in self.names
            case ast.Call(func=ast.Name(id=name)):
                return name in ("set", "frozenset") or name in self.known.functions
            case ast.Call(func=ast.Attribute(value=value, attr=attr)):
                return (
                    attr in SET_METHODS and self.is_set(value)
                ) or attr in self.known.functions
            case ast.Attribute(value=ast.Name(id="self"), attr=attr) if self.owner:
                return attr in self.known.by_class[self.owner]
            case ast.Attribute(attr=attr):
                return attr in self.known.attributes
            case ast.BinOp(left=left, right=right, op=op) if isinstance(
                op, SET_OPERATORS
            ):
                return self.is_set(left) or self.is_set(right)
            case ast.BoolOp(values=values):
                return any(map(self.is_set, values))
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_set(body) or self.is_set(orelse)
            case ast.NamedExpr(value=value):
                return self.is_set(value)
        return False


def annotated(tree: ast.AST) -> Iterator[tuple[str, str, ast.expr | None]]:
    """Yield each declaration as (class, name, annotation).

    The class is "()" for a function.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield "()", node.name, node.returns
        if isinstance(node, ast.ClassDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.AnnAssign):
                    if isinstance(inner.target, ast.Name) and inner in node.body:
                        yield node.name, inner.target.id, inner.annotation
                    elif (
                        isinstance(inner.target, ast.Attribute)
                        and ast.unparse(inner.target.value) == "self"
                    ):
                        yield node.name, inner.target.attr, inner.annotation


def known_sets(trees: Iterable[ast.AST]) -> Known:
    functions: dict[str, list[bool]] = defaultdict(list)
    attributes: dict[str, list[bool]] = defaultdict(list)
    by_class: dict[str, set[str]] = defaultdict(set)
    for tree in trees:
        for owner, name, annotation in annotated(tree):
            (functions if owner == "()" else attributes)[name].append(
                is_set_annotation(annotation)
            )
            if owner != "()" and is_set_annotation(annotation):
                by_class[owner].add(name)
    return Known(
        frozenset(name for name, sets in functions.items() if all(sets)),
        frozenset(
            name
            for name, sets in attributes.items()
            if all(sets) and name not in functions
        ),
        defaultdict(
            frozenset, {owner: frozenset(names) for owner, names in by_class.items()}
        ),
    )


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, without nested functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from own_nodes(child)


def scopes(
    node: ast.AST, known: Known, owner: str = "", outer: frozenset[str] = frozenset()
) -> Iterator[tuple[Scope, list[ast.AST]]]:
    scope, nodes = Scope(known, owner, set(outer)), list(own_nodes(node))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        scope.names -= {argument.arg for argument in arguments}
        scope.names |= {
            argument.arg
            for argument in arguments
            if is_set_annotation(argument.annotation)
        }
    for inner in nodes:
        match inner:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if (
                is_set_annotation(annotation)
            ):
                scope.names.add(name)
            case ast.Assign(targets=targets, value=value) if scope.is_set(value):
                scope.names |= {
                    target.id for target in targets if isinstance(target, ast.Name)
                }
            case ast.Assign(
                targets=[ast.Tuple(elts=elements)], value=ast.Tuple(elts=values)
            ) if len(elements) == len(values):
                pairs = zip(elements, values, strict=True)
                scope.names |= {
                    target.id
                    for target, value in pairs
                    if isinstance(target, ast.Name) and scope.is_set(value)
                }
            case ast.NamedExpr(target=ast.Name(id=name), value=value) if scope.is_set(
                value
            ):
                scope.names.add(name)
    yield scope, nodes
    for inner in nodes:
        if isinstance(inner, ast.ClassDef):
            yield from scopes(inner, known, inner.name, frozenset(scope.names))
        elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from scopes(inner, known, owner, frozenset(scope.names))


def read_in_order(node: ast.AST) -> list[ast.expr]:
    """Return the expressions that a node iterates such that its result depends on the
    order.
    """
    match node:
        case (
            ast.For(iter=iterable)
            | ast.AsyncFor(iter=iterable)
            | ast.YieldFrom(value=iterable)
        ):
            return [iterable]
        case (
            ast.ListComp(generators=generators)
            | ast.DictComp(generators=generators)
            | ast.GeneratorExp(generators=generators)
        ):
            return [generator.iter for generator in generators]
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [
                element.value
                for element in elements
                if isinstance(element, ast.Starred)
            ]
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in ORDERED:
            return [
                argument.value if isinstance(argument, ast.Starred) else argument
                for argument in arguments
            ]
        case ast.Call(
            func=ast.Name(id="min" | "max"), args=arguments, keywords=[_, *_]
        ):
            return list(arguments)
        case ast.Call(func=ast.Attribute(attr=name), args=arguments) if (
            name in ORDERED_METHODS
        ):
            return list(arguments)
        case ast.Call(func=ast.Attribute(attr="pop"), args=[]):
            return [node.func.value] if isinstance(node.func, ast.Attribute) else []
        case ast.AugAssign(op=ast.Add(), value=value):
            return [value]
    return []


def harmless(nodes: Iterable[ast.AST]) -> set[int]:
    """Return the IDs of comprehensions whose consumers ignore the order."""
    found: set[int] = set()
    for node in nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in UNORDERED
        ):
            if node.func.id in ("min", "max") and node.keywords:
                continue
            found |= {id(argument) for argument in node.args}
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("update", "difference_update")
        ):
            found |= {
                id(argument)
                for argument in node.args
                if isinstance(argument, ast.GeneratorExp)
            }
    return found


def iterated_sets(sources: Mapping[str, str]) -> list[str]:
    """Return the places that iterate a set in order."""
    trees = {name: ast.parse(source) for name, source in sources.items()}
    known = known_sets(trees.values())
    found = set[str]()
    for name, tree in trees.items():
        for scope, nodes in scopes(tree, known):
            allowed = harmless(nodes)
            read = [
                iterable
                for node in nodes
                if id(node) not in allowed
                for iterable in read_in_order(node)
            ]
            found |= {
                f"{name}:{each.lineno}: {ast.unparse(each)}"
                for each in read
                if scope.is_set(each)
            }
    return sorted(found)


@pytest.mark.slow
def test_code_of_workflows_iterates_no_set_in_order() -> None:
    assert iterated_sets(SOURCES) == []


@pytest.mark.parametrize(
    "source",
    [
        "for x in {1, 2}: f(x)",
        "for x in set(a) - {''}: f(x)",
        "y = [x for x in frozenset(a)]",
        "y = {x: 1 for x in {z for z in a}}",
        "y = list(set(a))",
        "y = ', '.join({*a})",
        "y = dict.fromkeys(set(a))",
        "y = [*set(a)]",
        "y = max(set(a), key=f)",
        "s = set(a)\nfor x in s: f(x)",
        "def f(s: frozenset[str]) -> None:\n    for x in s: g(x)",
        "def f() -> set[int]: ...\nfor x in f(): g(x)",
        (
            "class C:\n    def __init__(self) -> None:\n        self.s: set[str] = a\n"
            "    def f(self) -> object:\n        return list(self.s)"
        ),
        "class C:\n    s: frozenset[str]\ndef f(c: C) -> str:\n    return next(iter(c.s))",
        "s = set(a)\ny = s.pop()",
    ],
)
def test_a_set_that_is_iterated_in_order_is_found(source: str) -> None:
    assert iterated_sets({"m.py": source})


@pytest.mark.parametrize(
    "source",
    [
        "for x in sorted({1, 2}): f(x)",
        "y = sorted(f(x) for x in set(a))",
        "y = {f(x) for x in set(a)}",
        "y = any(f(x) for x in set(a))",
        "y = len(set(a)) + sum({1, 2})",
        "for x in dict.fromkeys(a): f(x)",
        "y = 1 in set(a)",
    ],
)
def test_code_that_does_not_depend_on_the_order_is_allowed(source: str) -> None:
    assert not iterated_sets({"m.py": source})
