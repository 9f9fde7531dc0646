"""A small part of `make fuzz`, from a fixed seed.

No input breaks a reader, exceeds the limits of time and memory, or is shown unescaped.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import cases as case_module
from tests.fuzz import corpus
from tests.fuzz.cases import Shown, Target, run_case
from tests.fuzz.mutations import mutated
from tests.fuzz.processes import Outcome, run_batch
from tests.fuzz.targets import SECRET, TARGETS
from tests.random_cases import SEED, cases, generator

CASES = 40


def findings(outcome: Outcome) -> str:
    """Return the findings, for people."""
    return "\n\n".join(
        f"{found.signature}\n{found.detail}\n{found.text[:2000]!a}"
        for found in outcome.findings.values()
    )


@pytest.mark.slow
@pytest.mark.random
@pytest.mark.parametrize("target", TARGETS)
def test_every_input_is_read_or_rejected_with_an_error(target: str) -> None:
    outcome = Outcome()
    run_batch(target, SEED, outcome, corpus=True, cases=cases(CASES))
    assert not outcome.findings, findings(outcome)
    assert outcome.count > len(corpus.inputs(target)) + cases(CASES) / 2


@pytest.mark.slow
def test_the_same_seed_gives_the_same_inputs() -> None:
    text = corpus.inputs("plan")["fleet.yaml"]
    assert [mutated(text, generator()) for _ in range(20)] == [
        mutated(text, generator()) for _ in range(20)
    ]
    source = generator()
    assert len({mutated(text, source) for _ in range(50)}) > 40


def _never_ends(_: str) -> Shown:
    while True:
        sum(range(1000))


def _fails(_: str) -> Shown:
    raise RecursionError


BROKEN = [
    ("RecursionError", _fails),
    ("too slow", _never_ends),
    ("long error", lambda _: Shown("x" * 70_000)),
    ("control characters in the error", lambda _: Shown("\x1b[31m")),
    ("control characters in the output", lambda _: Shown(output="\x9b")),
    ("a secret in the error", lambda _: Shown(f"bad {SECRET}")),
    (
        "internal error in the output",
        lambda _: Shown(output="internal error: KeyError"),
    ),
]


@pytest.mark.parametrize(("signature", "run"), BROKEN, ids=[case[0] for case in BROKEN])
def test_a_broken_reader_is_found(
    signature: str, run: Callable[[str], Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case_module, "SECONDS_MAX", 0.2)
    found, _ = run_case(Target("x", run, SECRET), "input")
    assert found is not None
    assert (found.signature.startswith(signature), found.text) == (True, "input")


def test_a_timeout_is_not_caught_by_a_reader_that_catches_every_exception() -> None:
    assert not issubclass(case_module.TooSlow, Exception)


def test_the_measured_memory_excludes_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(case_module, "MEMORY_MIB_MAX", 50)
    large = b"x" * (100 << 20)
    harmless, _ = run_case(Target("x", lambda _: Shown()), "input")
    del large
    greedy, run = run_case(
        Target("x", lambda _: Shown(str(len(b"x" * (100 << 20))))), "input"
    )
    assert (harmless, greedy and greedy.signature, run.memory_mib > 50) == (
        None,
        "memory",
        True,
    )


def test_a_finding_is_stored_unchanged(tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    corpus.keep("words", "a\ud800\r\n", tmp_path)
    assert list(corpus.inputs("words", tmp_path).values()) == ["a\ud800\r\n"]


@pytest.mark.slow
def test_a_process_that_ends_without_a_result_is_a_finding() -> None:
    outcome = Outcome()
    run_batch("no-such-target", SEED, outcome)
    assert list(outcome.findings) == ["no-such-target ended"]


def test_a_recipe_makes_an_input_that_is_too_large_to_keep(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.recipe").write_text('["[", ["k{n}, ", 3], ["]", 2]]')
    assert corpus.inputs("x", tmp_path) == {"a.recipe": "[k0, k1, k2, ]]"}
