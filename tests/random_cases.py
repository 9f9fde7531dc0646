"""How many random cases the tests draw, and from which seed: one setting for every random test.

`MODELPLANE_TEST_CASES` multiplies the counts that stand in the tests: 1 in `make test`, less in `make test-fast`, more in `make campaign`.
`MODELPLANE_TEST_SEED` starts every draw. Unless it is set it is the same on every run, so that a commit which is green stays green; a
campaign sets a new one. A case that a campaign finds is added to its test: as `@example(...)` above `@given(...)`, or as a fleet's
number.

Not here: what is drawn. Strategies and generators live beside the tests that use them.
"""

import os
import random
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

FIXED_SEED = 20261121
SEED = int(os.environ.get("MODELPLANE_TEST_SEED") or FIXED_SEED)
FACTOR = float(os.environ.get("MODELPLANE_TEST_CASES") or 1)
CASES_MIN = 5

Test = TypeVar("Test", bound=Callable[..., Any])


def cases(count: int) -> int:
    """How many cases to draw where `make test` draws `count`."""
    return max(min(count, CASES_MIN), round(count * FACTOR))


def generator() -> random.Random:
    """Make a source of random numbers that starts at the seed."""
    return random.Random(SEED)  # noqa: S311 - repeatable on purpose


def random_cases(count: int, start: int = SEED) -> Callable[[Test], Test]:
    """Let Hypothesis draw that many cases for a test, from a seed; stands above `@given`."""
    # Takes a fifth of a second, which tests without random cases do not pay.
    from hypothesis import HealthCheck, seed, settings  # noqa: PLC0415, TID251

    if start == FIXED_SEED:
        _draw_no_constants_of_the_product()
    # Nothing that depends on the speed of the machine or on earlier runs decides whether a test passes.
    chosen = settings(max_examples=cases(count), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    return lambda test: pytest.mark.random(seed(start)(chosen(test)))


def _draw_no_constants_of_the_product() -> None:
    """Keep Hypothesis from drawing constants of the product's modules.

    It takes them from the modules that happen to be loaded, which in a process of many tests depends on which ran before. A campaign
    keeps them: there the draws differ anyway.
    """
    from hypothesis.internal.conjecture import providers  # noqa: PLC0415

    nothing = providers._local_constants
    providers._get_local_constants = lambda: nothing


def described() -> str:
    """One line for the head of a test run."""
    seed = "the seed of every run" if SEED == FIXED_SEED else "a seed of this run"
    return f"random cases: times {FACTOR:g}, from {SEED} ({seed}); repeat with MODELPLANE_TEST_CASES={FACTOR:g} MODELPLANE_TEST_SEED={SEED}"
