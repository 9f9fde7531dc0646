"""Random selectors have the outcome of Kubernetes, apart from the listed differences.

One test builds selectors from shapes, which tests evaluation. The other damages
recorded selectors, which tests parsing.
"""

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given

from scheduler.cel import SelectorError, compile_selector
from tests.oracle.client import Oracle
from tests.random_cases import SEED, cases, generator, random_cases
from tests.scheduler.cel.devices import DEVICES as NAMED_DEVICES
from tests.scheduler.cel.devices import random_devices
from tests.scheduler.cel.differences import (
    KUBERNETES_COST_MAX,
    disagreement,
    kubernetes_outcomes,
    verdicts_of,
)
from tests.scheduler.cel.selectors import expressions

SELECTORS = 1_000
DEVICES = random_devices(SEED, 50)


@random_cases(SELECTORS)
@given(selector=expressions())
def test_any_selector_has_the_outcome_of_kubernetes(
    selector: str, oracle: Oracle
) -> None:
    answer = oracle.select(selector, DEVICES)
    in_kubernetes = kubernetes_outcomes(answer, len(DEVICES))
    verdicts = verdicts_of(selector, DEVICES)
    wrong = [
        disagreement(selector, *each)
        for each in zip(DEVICES, verdicts, in_kubernetes, strict=True)
    ]
    assert not any(wrong), "\n".join(filter(None, wrong))
    _same_estimate(selector, answer)


def _same_estimate(selector: str, answer: dict[str, object]) -> None:
    if answer.get("error"):
        return
    try:
        compiled = compile_selector(selector, max_cost=KUBERNETES_COST_MAX)
    except SelectorError:
        return
    assert compiled.cost_estimate == answer["max_cost"], selector


CORPUS = Path(__file__).parents[2] / "data" / "cel_corpus.json"
MUTANTS = 4_000
# Longer selectors test depth and size, and take too long.
SELECTOR_CHARACTERS_MAX = 200
CUT_CHARACTERS_MAX = 3
# Kubernetes writes all zeros of such a quantity, which takes hours. The scheduler
# refuses it.
LARGE_EXPONENT = re.compile(r"\d[eE][+-]?\d{5}")
PIECES = [
    *"()[]{}.,:?!-+*/%<>=&|\"'\\ \n\tabux019_`~@#$;",
    *(
        "&&",
        "||",
        "==",
        "!=",
        " in ",
        "true",
        "null",
        "0x",
        "1u",
        "1e3",
        "//",
        'r"',
        "'''",
        '"""',
        "\\u00e9",
        "\\x41",
        "é",
    ),
    *("..", "--", "!!", "?:", "has(", "-1", ".5", "5.", "b'", ",]"),
]


def _damaged(selector: str, source: random.Random) -> str:
    for _ in range(source.randint(1, 2)):
        place = source.randrange(len(selector) + 1)
        kind = source.choice(("insert", "insert", "cut", "cut", "join"))
        if kind == "insert":
            selector = selector[:place] + source.choice(PIECES) + selector[place:]
        elif kind == "cut":
            selector = (
                selector[:place]
                + selector[place + source.randint(1, CUT_CHARACTERS_MAX) :]
            )
        else:
            selector = f"{selector} {source.choice(('&&', '||', '==', '+'))} {selector[place:]}"
    return selector


@pytest.mark.random
def test_a_damaged_selector_has_the_outcome_of_kubernetes(oracle: Oracle) -> None:
    source = generator()
    rows = json.loads(CORPUS.read_text(encoding="utf-8"))["rows"]
    recorded = [
        row["selector"]
        for row in rows
        if len(row["selector"]) <= SELECTOR_CHARACTERS_MAX
    ]
    devices = list(NAMED_DEVICES.values())
    wrong: list[str] = []
    for _ in range(cases(MUTANTS)):
        selector = _damaged(source.choice(recorded), source)
        if LARGE_EXPONENT.search(selector):
            continue
        in_kubernetes = kubernetes_outcomes(
            oracle.select(selector, devices), len(devices)
        )
        verdicts = verdicts_of(selector, devices)
        wrong += filter(
            None,
            (
                disagreement(selector, *each)
                for each in zip(devices, verdicts, in_kubernetes, strict=True)
            ),
        )
    assert not wrong, "\n".join(wrong[:5])
