"""Every policy at once on random small worlds, compared with the brute-force program beside this test.

A world follows from its number, and a failure names the number; added to `FOUND` it is tried on every run.
"""

import pytest

from tests.random_cases import SEED, cases
from tests.scheduler.laws.policies import asking, complete, kept, lawful, reasons
from tests.scheduler.laws.policies.steps import run
from tests.scheduler.laws.policies.worlds import random_world

WORLDS = 1_000
# Numbers of worlds that once broke a law.
FOUND: tuple[int, ...] = ()
# So that processes can share them, and none of the tests takes long.
SHARES = 10
# Laws that the scheduler does not keep yet.
PENDING = (lawful.i6_there_are_no_more_than_wanted,)
OF_STEPS = [law for law in (*lawful.LAWFUL, *kept.KEPT, *complete.COMPLETE, *reasons.REASONS) if law not in PENDING]
OF_WORLDS = [
    law
    for law in asking.QUESTIONS
    if law not in (asking.asking_changes_no_later_answer, asking.i4_the_same_question_again_keeps_everything)
]


def broken_laws(number: int) -> list[str]:
    """Decide a world, and give what is wrong with it."""
    outcome = run(random_world(number))
    found = [f"{law.__name__}: {text}" for step in outcome.steps for law in OF_STEPS for text in law(step)]
    return found + [f"{law.__name__}: {text}" for law in OF_WORLDS for text in law(outcome)]


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.random
def test_every_law_holds_with_every_policy(share: int) -> None:
    numbers = (*FOUND, *range(SEED, SEED + cases(WORLDS)))[share::SHARES]
    assert {number: found for number in numbers if (found := broken_laws(number))} == {}
