"""No test asserts that something happens within some time of a loaded machine.

A limit on computing time is one of `effort_below`, in units that grow with the load. A limit on waiting is that of the wait itself:
`asyncio.timeout` around a condition, long enough for a busy machine and shorter than any other cause that makes the condition true.
Asserting that at least some time has passed is allowed, because no load makes it false.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CLOCKS = ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "process_time_ns", "thread_time")
BELOW, ABOVE = (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)


def reads_a_clock(node: ast.AST, since: frozenset[str] = frozenset()) -> bool:
    """Return whether an expression calls a clock of `time`, or has a name that was assigned from one."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in CLOCKS:
            if isinstance(each.func.value, ast.Name) and each.func.value.id == "time":
                return True
        elif isinstance(each, ast.Name) and each.id in since:
            return True
    return False


def elapsed(function: ast.AST) -> frozenset[str]:
    """Return the names of a function that hold a difference of times."""
    assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp)]
    return frozenset(target.id for node in assigned if reads_a_clock(node.value) for target in node.targets if isinstance(target, ast.Name))


def upper_limits(source: str) -> Iterator[int]:
    """Yield the lines of assertions that a time is below something."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in functions:
        since = elapsed(function)
        asserted = [node for node in ast.walk(function) if isinstance(node, ast.Assert)]
        for comparison in (each for node in asserted for each in ast.walk(node.test) if isinstance(each, ast.Compare)):
            sides = [comparison.left, *comparison.comparators]
            for left, operator, right in zip(sides, comparison.ops, sides[1:], strict=False):
                smaller = left if isinstance(operator, BELOW) else right if isinstance(operator, ABOVE) else None
                if smaller is not None and reads_a_clock(smaller, since):
                    yield comparison.lineno


@pytest.mark.slow
def test_no_test_asserts_an_upper_limit_of_time() -> None:
    sources = {path: path.read_text() for path in sorted(TESTS.rglob("*.py"))}
    names = {path: str(path.relative_to(TESTS.parent)) for path in sources}
    found = {names[path]: [*upper_limits(source)] for path, source in sources.items() if "time." in source and "assert" in source}
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
