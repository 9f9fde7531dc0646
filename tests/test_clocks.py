"""No test asserts that an action finishes within some time on a loaded machine.

Limit computing time with `effort_below`, in units that grow with the load. Limit
waiting with the wait itself: `asyncio.timeout` around a condition, long enough for a
busy machine and shorter than any other cause that makes the condition true. Asserting
that at least some time has passed is allowed, because no load makes it false.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

NodeT = TypeVar("NodeT", bound=ast.AST)

TESTS = Path(__file__).parent
NAMES = ("monotonic", "perf_counter", "process_time", "thread_time")
CLOCKS = {*NAMES, *(f"{name}_ns" for name in NAMES)}
BELOW, ABOVE = (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)


def reads_a_clock(node: ast.AST, since: frozenset[str] = frozenset()) -> bool:
    """Return whether an expression calls a clock of `time`, or has a name of `since`."""
    for each in ast.walk(node):
        match each:
            case ast.Call(func=ast.Attribute(ast.Name("time"), name)) if name in CLOCKS:
                return True
            case ast.Name(id=name) if name in since:
                return True
    return False


def nodes(tree: ast.AST, kind: type[NodeT]) -> Iterator[NodeT]:
    """Yield the nodes of a type."""
    return (node for node in ast.walk(tree) if isinstance(node, kind))


def elapsed(function: ast.AST) -> frozenset[str]:
    """Return the names of a function that hold a difference of times."""
    names = set()
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets, value=ast.BinOp() as difference):
                if reads_a_clock(difference):
                    names |= {
                        target.id for target in targets if isinstance(target, ast.Name)
                    }
    return frozenset(names)


def upper_limits(source: str) -> Iterator[int]:
    """Yield the lines of assertions that an elapsed time is below a limit."""
    tree = ast.parse(source)
    for function in [*nodes(tree, ast.FunctionDef), *nodes(tree, ast.AsyncFunctionDef)]:
        since = elapsed(function)
        for comparison in compared(function):
            sides = [comparison.left, *comparison.comparators]
            for left, operator, right in zip(
                sides, comparison.ops, sides[1:], strict=False
            ):
                above = isinstance(operator, ABOVE)
                smaller = right if above else left
                if (above or isinstance(operator, BELOW)) and reads_a_clock(
                    smaller, since
                ):
                    yield comparison.lineno


def compared(function: ast.AST) -> Iterator[ast.Compare]:
    """Yield the comparisons that a function asserts."""
    for asserted in nodes(function, ast.Assert):
        yield from nodes(asserted.test, ast.Compare)


@pytest.mark.slow
def test_no_test_asserts_an_upper_limit_of_time() -> None:
    sources = {path: path.read_text() for path in sorted(TESTS.rglob("*.py"))}
    timed = {path: source for path, source in sources.items() if "time." in source}
    found = {
        str(path.relative_to(TESTS)): [*upper_limits(timed[path])] for path in timed
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "body",
    [
        "assert time.monotonic() - began < 5",
        "assert 2 <= time.monotonic() - began < 25",
        "assert 5 > time.perf_counter() - began",
        "took = time.process_time() - began\n    assert took <= 5",
        "assert (time.process_time() - used) / 3 < 0.05, 'quiet'",
    ],
)
def test_an_upper_limit_is_found(body: str) -> None:
    assert [*upper_limits(f"def test() -> None:\n    {body}\n")]


@pytest.mark.parametrize(
    "body",
    [
        "assert time.monotonic() - began >= 2",
        "assert 2 <= time.monotonic() - began",
        "seconds = time.monotonic()\n    assert len(found) < 5",
        "while time.monotonic() < until:\n        pass",
    ],
)
def test_a_lower_limit_and_a_clock_without_an_assertion_are_allowed(body: str) -> None:
    assert not [*upper_limits(f"def test() -> None:\n    {body}\n")]
