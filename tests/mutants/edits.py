"""Mutants of source code: one small change each, found by symbol and statement, never by line."""

import ast
import copy
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)


class NotFoundError(Exception):
    """A kept mutant no longer applies: its symbol or its code is gone or not unique."""


@dataclass(frozen=True)
class Mutant:
    """A change of one symbol: `put` replaces the code `find`. An empty `put` deletes a statement.

    `find` is an expression or a statement, in any formatting. If the symbol contains it several
    times, `number` selects one, from 1. An empty symbol is the module itself. `killed_by` is the
    test, or the file of tests, that fails because of the change.
    """

    module: str
    symbol: str
    find: str
    put: str
    killed_by: str
    number: int = 0

    def __str__(self) -> str:
        change = f"{self.find} -> {self.put}" if self.put else f"without {self.find}"
        return f"{self.module} {self.symbol or '(module)'}: {change}"

    def applied(self) -> ast.Module:
        """Return the module's tree with the change. Raises NotFoundError."""
        tree = copy.deepcopy(parsed(self.module))
        scope = definition(tree, self.symbol) if self.symbol else tree
        if scope is None:
            raise NotFoundError(f"{self.module} has no {self.symbol}")
        wanted = ast.unparse(ast.parse(self.find))
        found = [slot for slot in slots(scope) if ast.unparse(slot.node) == wanted]
        if self.number:
            found = found[self.number - 1 : self.number]
        if len(found) != 1:
            raise NotFoundError(f"{self.module} {self.symbol} has {len(found)} of: {self.find}")
        found[0].replace(self._replacement(found[0].node))
        return ast.fix_missing_locations(tree)

    def _replacement(self, node: ast.AST) -> ast.AST:
        (statement,) = ast.parse(self.put or "pass").body
        if isinstance(node, ast.expr) and not isinstance(statement, ast.Expr):
            raise NotFoundError(
                f"{self}: the code is an expression, which a statement cannot replace"
            )
        new = (
            statement.value
            if isinstance(node, ast.expr) and isinstance(statement, ast.Expr)
            else statement
        )
        return ast.copy_location(new, node)


@dataclass(frozen=True)
class Slot:
    """A node of a tree, with its parent and its place there."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None

    def replace(self, node: ast.AST) -> None:
        """Put another node here."""
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def slots(scope: ast.AST) -> Iterator[Slot]:
    """List the statements and expressions below a node. A statement stands for its bare call."""
    for field, value in ast.iter_fields(scope):
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if not isinstance(child, ast.AST):
                continue
            alone = isinstance(scope, ast.Expr)
            if isinstance(child, ast.stmt | ast.expr | ast.pattern) and not alone:
                yield Slot(child, scope, field, index if isinstance(value, list) else None)
            yield from slots(child)


@cache
def parsed(module: str) -> ast.Module:
    """Parse a module, named by its path from the root of the repository."""
    path = ROOT / module
    if not path.is_file():
        raise NotFoundError(f"there is no {module}")
    return ast.parse(path.read_text(), filename=str(path))


def definition(tree: ast.AST, symbol: str) -> ast.AST | None:
    """Find a class or function by its qualified name, also inside an `if` or `with`."""
    name, _, rest = symbol.partition(".")
    for node in _definitions(tree):
        if node.name == name:
            return definition(node, rest) if rest else node
    return None


def _definitions(scope: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, DEFINITIONS):
            yield node
        else:
            yield from _definitions(node)


def function_of(tree: ast.AST, symbol: str) -> str | None:
    """Return the qualified name of the outermost function that a symbol is, or is in."""
    name = ""
    for part in symbol.split("."):
        name = f"{name}.{part}" if name else part
        if isinstance(definition(tree, name), FUNCTIONS):
            return name
    return None


def difference(module: str, changed: ast.Module) -> str:
    """Return the diff between the normalised code of a module and its changed tree."""
    before, after = ast.unparse(parsed(module)).splitlines(), ast.unparse(changed).splitlines()
    lines = difflib.unified_diff(before, after, module, module, lineterm="", n=2)
    return "\n".join(lines)
