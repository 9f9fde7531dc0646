"""Random mutants of operators, conditions, constants, statements and arguments."""

import ast
import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.edits import DEFINITIONS, ROOT, Slot, parsed

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
# No test reads the log.
NOT_MUTATED = ("logger.", "log.", "logging.", "warnings.")


@dataclass(frozen=True)
class Drawn:
    """The number-th mutant of a module. A number names the same mutant until the module changes."""

    module: str
    number: int
    symbol: str
    line: int
    description: str
    tree: ast.Module


@dataclass(frozen=True)
class _Change:
    slot: Slot
    new: ast.AST
    symbol: str
    description: str


def draw(package: str, sample: int, seed: int) -> list[Drawn]:
    """Draw mutants of a package, each place of its code as likely as any other."""
    places = [
        (module, number)
        for module in modules(package)
        for number in range(len(list(changes(parsed(module)))))
    ]
    # Repeatable on purpose.
    chosen = random.Random(seed).sample(places, min(sample, len(places)))  # noqa: S311
    return [mutant(module, number) for module, number in chosen]


def modules(package: str) -> list[str]:
    """List the modules of a package. A path of a module lists that module."""
    path = ROOT / package
    found = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return [str(Path(each).relative_to(ROOT)) for each in found]


def mutant(module: str, number: int) -> Drawn:
    """Make the number-th mutant of a module."""
    tree = copy.deepcopy(parsed(module))
    change = list(changes(tree))[number]
    # An operator has no line of its own.
    line = getattr(change.slot.node, "lineno", 0) or getattr(change.slot.parent, "lineno", 0)
    change.slot.replace(ast.copy_location(change.new, change.slot.node))
    return Drawn(
        module, number, change.symbol, line, change.description, ast.fix_missing_locations(tree)
    )


def changes(tree: ast.Module) -> Iterator[_Change]:
    """List all changes of a module, in the order of its code."""
    yield from _below(tree, "")


def _below(node: ast.AST, symbol: str) -> Iterator[_Change]:
    for slot in _mutable(node):
        inner = symbol
        if isinstance(slot.node, DEFINITIONS):
            inner = f"{symbol}.{slot.node.name}" if symbol else slot.node.name
        for new, description in _instead(slot):
            yield _Change(slot, new, inner, description)
        yield from _below(slot.node, inner)


def _mutable(node: ast.AST) -> Iterator[Slot]:
    for field, value in ast.iter_fields(node):
        if field in {
            "annotation",
            "returns",
            "type_params",
            "decorator_list",
            "bases",
            "format_spec",
        }:
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST) and not _is_left_out(node, child):
                yield Slot(child, node, field, index if isinstance(value, list) else None)


def _is_left_out(node: ast.AST, child: ast.AST) -> bool:
    if isinstance(
        child, ast.Import | ast.ImportFrom | ast.expr_context | ast.Global | ast.Nonlocal
    ):
        return True
    if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
        return True
    if isinstance(child, ast.Expr) and ast.unparse(child).startswith(NOT_MUTATED):
        return True
    if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
        return True
    named = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in {
        "__all__",
        "__slots__",
    }
    return named or (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant))


def _instead(slot: Slot) -> Iterator[tuple[ast.AST, str]]:
    node = slot.node
    if type(node) in OPERATORS:
        other = OPERATORS[type(node)]()
        if not (
            isinstance(node, ast.Mod)
            and isinstance(slot.parent, ast.BinOp)
            and isinstance(slot.parent.left, ast.Constant)
        ):
            yield other, f"{type(node).__name__} -> {type(other).__name__}"
    if isinstance(node, ast.Constant):
        yield from _other_constants(node)
    if isinstance(node, ast.expr) and slot.field in {"test", "ifs"}:
        yield ast.UnaryOp(ast.Not(), node), "condition negated"
        for value in (False, True):
            # "while True" stays as it is.
            if not (isinstance(node, ast.Constant) and node.value is value):
                yield ast.Constant(value=value), f"condition {value}"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand, "not removed"
    if isinstance(node, ast.BoolOp):
        for index in range(len(node.values)):
            rest = [value for place, value in enumerate(node.values) if place != index]
            yield (
                (rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)),
                f"operand {index + 1} removed",
            )
    if isinstance(node, ast.Name) and node.id in NAMES and slot.field == "func":
        yield ast.Name(NAMES[node.id], ast.Load()), f"{node.id} -> {NAMES[node.id]}"
    if (
        isinstance(node, ast.Call)
        and len(node.args) > 1
        and not any(isinstance(each, ast.Starred) for each in node.args[:2])
        # The order of the arguments of min and max changes nothing.
        and not (isinstance(node.func, ast.Name) and node.func.id in NAMES)
    ):
        yield (
            ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords),
            "arguments swapped",
        )
    yield from _other_statements(node)


def _other_constants(node: ast.Constant) -> Iterator[tuple[ast.AST, str]]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(value=not value), f"{value} -> {not value}"
    elif isinstance(value, int | float):
        yield ast.Constant(value=value + 1), f"{value} -> {value + 1}"
    elif isinstance(value, str):
        yield (
            ast.Constant(value="" if value else "x"),
            "text emptied" if value else "text no longer empty",
        )


def _other_statements(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, ast.Delete) and all(isinstance(each, ast.Name) for each in node.targets):
        return  # an unused argument: nothing changes without the statement
    if isinstance(node, ast.Expr | ast.AugAssign | ast.Raise | ast.Delete):
        yield ast.Pass(), "statement deleted"
    elif isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple):
        yield ast.Pass(), "assignment deleted"
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield ast.Return(ast.Constant(value=None)), "None returned"
    elif isinstance(node, ast.Break):
        yield ast.Continue(), "break -> continue"
    elif isinstance(node, ast.Continue):
        yield ast.Pass(), "continue deleted"


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
