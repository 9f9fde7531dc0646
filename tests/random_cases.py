"""The number and the seed of random cases, for every random test.

`MODELPLANE_TEST_CASES` multiplies the numbers in the tests. It is 1 in `make test`,
less in `make test-fast` and more in `make campaign`. `MODELPLANE_TEST_SEED` is the seed
of every draw. Its default is fixed, so that a commit either passes or fails every time;
a campaign sets a new seed. If a campaign finds a failure, add the case to the test: as
`@example(...)` above `@given(...)`, or as the number of a fleet.

Strategies and generators live beside the tests that use them, not here.
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
    """Return the number of cases to draw where `make test` draws `count`."""
    return max(min(count, CASES_MIN), round(count * FACTOR))


def generator() -> random.Random:
    """Return a random number generator with the seed."""
    return random.Random(SEED)  # noqa: S311 - repeatable on purpose


def random_cases(count: int, start: int = SEED) -> Callable[[Test], Test]:
    """Let Hypothesis draw `count` cases from a seed. Place it above `@given`."""
    # The import takes a fifth of a second, which other tests should not pay.
    from hypothesis import HealthCheck, seed, settings  # noqa: PLC0415, TID251

    if start == FIXED_SEED:
        _draw_no_constants_of_the_product()
    # The result must not depend on the speed of the machine or on earlier runs.
    chosen = settings(
        max_examples=cases(count),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: pytest.mark.random(seed(start)(chosen(test)))


def _draw_no_constants_of_the_product() -> None:
    """Keep Hypothesis from drawing constants of the product's modules.

    Hypothesis takes constants from all loaded modules, which depend on the tests that
    ran before in the same process. A campaign draws new cases anyway, so it keeps the
    constants.
    """
    from hypothesis.internal.conjecture import providers  # noqa: PLC0415

    nothing = providers._local_constants
    providers._get_local_constants = lambda: nothing


def described() -> str:
    """Return a line for the header of a test run."""
    seed = "the seed of every run" if SEED == FIXED_SEED else "a seed of this run"
    repeat = f"MODELPLANE_TEST_CASES={FACTOR:g} MODELPLANE_TEST_SEED={SEED}"
    return f"random cases: times {FACTOR:g}, from {SEED} ({seed}); repeat with {repeat}"
