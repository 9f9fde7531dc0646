"""Kept mutants apply to the present code and name existing tests, which `make mutants` runs."""

import ast
import os
import select
import subprocess

import pytest

from tests.mutants import drawn, trials
from tests.mutants.edits import ROOT, Mutant, NotFoundError, definition, difference, parsed
from tests.mutants.kept import KEPT


@pytest.mark.slow
@pytest.mark.parametrize("mutant", KEPT, ids=str)
def test_a_kept_mutant_applies_and_its_test_exists(mutant: Mutant) -> None:
    assert ast.unparse(mutant.applied()) != ast.unparse(parsed(mutant.module))
    file, _, test = mutant.killed_by.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert (
        definition(tree, test)
        if test
        else any(name.startswith("test_") for name in _functions(tree))
    )


def _functions(tree: ast.Module) -> list[str]:
    return [
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_no_mutant_is_kept_twice() -> None:
    assert len({str(mutant) for mutant in KEPT}) == len(KEPT)


def test_what_a_trial_leaves_running_is_killed() -> None:
    closed, held = os.pipe()
    process = os.fork()
    if not process:
        os.setpgid(0, 0)
        subprocess.Popen(["sleep", "600"], pass_fds=[held])
        os._exit(0)
    os.close(held)
    assert trials._ended(process, limit=60)
    assert select.select([closed], [], [], 60)[0], "the process that held the pipe is gone"
    os.close(closed)


HERE = "tests/mutants/test_kept.py"


def example(first: int, second: int) -> int:
    """Be changed."""
    if first > second:
        print(first)
    return first + second


def changed(find: str, put: str, symbol: str = "example", number: int = 0) -> list[str]:
    """Return the lines that a mutant of this file removes and adds."""
    lines = difference(HERE, Mutant(HERE, symbol, find, put, "", number).applied()).splitlines()
    return [line[:1] + line[1:].strip() for line in lines[2:] if line[0] in "+-"]


def test_a_mutant_replaces_an_expression_or_deletes_a_statement_in_any_formatting() -> None:
    assert changed("first>second", "False") == ["-if first > second:", "+if False:"]
    assert changed("print( first )", "") == ["-print(first)", "+pass"]
    assert changed("return (first\n + second)", "return 0") == [
        "-return first + second",
        "+return 0",
    ]
    assert changed("first", "second", number=2) == ["-print(first)", "+print(second)"]


@pytest.mark.parametrize(
    ("symbol", "find", "problem"),
    [
        ("gone", "first", "has no gone"),
        ("example", "third", "has 0 of: third"),
        ("example", "first", "has 3 of: first"),
        ("example", "first + second", "cannot replace"),
    ],
)
def test_a_mutant_that_does_not_apply_any_more_is_an_error(
    symbol: str, find: str, problem: str
) -> None:
    with pytest.raises(NotFoundError, match=problem):
        Mutant(HERE, symbol, find, "return 0", "").applied()


@pytest.mark.slow
def test_random_mutants_are_repeated_by_their_seed_and_change_the_code() -> None:
    first, again = (drawn.draw("workflows/entity", 20, 7) for _ in range(2))
    assert [(each.module, each.number, each.description) for each in first] == [
        (each.module, each.number, each.description) for each in again
    ]
    assert all(difference(each.module, each.tree) for each in first)
