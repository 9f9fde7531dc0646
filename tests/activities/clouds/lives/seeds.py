"""Which random lives a run of the tests has."""

from collections.abc import Collection
from typing import Any

import pytest

from tests.random_cases import FIXED_SEED, SEED, cases

# Further lives, for `make test-long`.
MORE = 5


def seeds(found: Collection[int], first: int) -> list[Any]:
    """Return the seed and number of each life.

    `make test` runs the lives that once found an error, and the `first` ones of its
    seed.
    """
    first = cases(first)
    return [
        *((FIXED_SEED, number) for number in found),
        *((SEED, number) for number in range(first)),
        *(
            pytest.param(SEED, number, marks=pytest.mark.long)
            for number in range(first, first + MORE)
            if number not in found
        ),
    ]
