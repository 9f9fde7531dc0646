"""All policies at once on random small worlds, compared with a brute-force program.

A world follows from its number, and a failure names the number. Numbers in `FOUND` are
tried on every run.
"""

import pytest

from tests.random_cases import SEED, cases
from tests.scheduler.laws.policies import asking, complete, kept, lawful, reasons
from tests.scheduler.laws.policies.steps import run
from tests.scheduler.laws.policies.worlds import random_world

WORLDS = 800
# Numbers of worlds that once broke a law.
FOUND: tuple[int, ...] = (1968, 3355, 20261478)
# Chunks let processes share the worlds, and keep each test short.
SHARES = 10
OF_STEPS = (*lawful.LAWFUL, *kept.KEPT, *complete.COMPLETE, *reasons.REASONS)


def broken_laws(number: int) -> list[str]:
    """Decide a world, and return its violations."""
    outcome = run(random_world(number))
    found = [
        f"world {number}: {law.__name__}: {text}"
        for step in outcome.steps
        for law in OF_STEPS
        for text in law(step)
    ]
    return found + [
        f"world {number}: {law.__name__}: {text}"
        for law in asking.QUESTIONS
        for text in law(outcome)
    ]


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.random
def test_every_law_holds_with_every_policy(share: int) -> None:
    broken = []
    for number in (*FOUND, *range(SEED, SEED + cases(WORLDS)))[share::SHARES]:
        try:
            broken += broken_laws(number)
        except Exception as error:
            error.add_note(f"world {number}")
            raise
    assert not broken, "\n".join(broken)
