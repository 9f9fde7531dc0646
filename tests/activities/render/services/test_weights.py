"""Weights of backends: a table of examples, and laws for all inputs."""

from fractions import Fraction
from math import gcd

import pytest
from hypothesis import given, strategies

from activities.render.services.weights import (
    WEIGHT_MAX,
    WeightedEntry,
    backend_weights,
    routed_endpoints,
)
from api_types.limits import ROUTE_BACKENDS_MAX
from tests.random_cases import random_cases

ENTRIES = strategies.lists(
    strategies.builds(
        WeightedEntry,
        weight=strategies.integers(1, 1_000_000),
        endpoints=strategies.integers(0, 40),
    ),
    min_size=1,
    max_size=20,
)
SMALL = strategies.lists(
    strategies.builds(
        WeightedEntry,
        weight=strategies.integers(1, 100),
        endpoints=strategies.integers(0, 16),
    ),
    max_size=5,
)

TABLE = [
    ([(80, 3), (20, 1)], [[27, 27, 26], [20]]),
    ([(1, 2), (3, 1)], [[1, 1], [6]]),
    ([(2, 1), (2, 1)], [[1], [1]]),
    ([(1, 5)], [[1] * 5]),
    ([(95, 4), (5, 1)], [[24, 24, 24, 23], [5]]),
    ([(95, 4), (5, 0)], [[24, 24, 24, 23], []]),
    ([(1, 3), (1, 1)], [[1, 1, 1], [3]]),
    ([(1, 7), (1, 3)], [[1] * 7, [3, 2, 2]]),
    ([(10, 4), (10, 6)], [[3, 3, 2, 2], [2, 2, 2, 2, 1, 1]]),
    ([(1, 1), (1, 2), (2, 3)], [[2], [1, 1], [2, 1, 1]]),
    ([(95, 2), (5, 8)], [[95, 95], [2, 2, 1, 1, 1, 1, 1, 1]]),
    ([(1_000_000, 1), (1, 2)], [[1_000_000], [1, 1]]),
    ([(50, 0), (50, 0)], [[], []]),
]


@pytest.mark.parametrize(
    ("entries", "expected"), TABLE, ids=[f"{entries}" for entries, _ in TABLE]
)
def test_the_table_of_examples(
    entries: list[tuple[int, int]], expected: list[list[int]]
) -> None:
    assert backend_weights([WeightedEntry(*entry) for entry in entries]) == expected


@random_cases(300)
@given(entries=SMALL)
def test_entries_keep_their_shares_and_endpoints_of_one_entry_are_nearly_equal(
    entries: list[WeightedEntry],
) -> None:
    weights = backend_weights(entries)
    total = sum(map(sum, weights))
    live = sum(entry.weight for entry in entries if entry.endpoints)
    for entry, of_entry in zip(entries, weights, strict=True):
        assert len(of_entry) == entry.endpoints
        if of_entry:
            assert Fraction(sum(of_entry), total) == Fraction(entry.weight, live)
            assert of_entry == sorted(of_entry, reverse=True)
    everyone = [weight for of_entry in weights for weight in of_entry]
    assert gcd(*everyone) in (0, 1)
    assert all(0 < weight <= WEIGHT_MAX for weight in everyone)


@random_cases(300)
@given(entries=ENTRIES)
def test_a_rule_routes_at_most_its_maximum_of_endpoints(
    entries: list[WeightedEntry],
) -> None:
    routed = routed_endpoints(entries)
    assert sum(routed) == min(
        ROUTE_BACKENDS_MAX, sum(entry.endpoints for entry in entries)
    )
    assert all(
        0 <= count <= entry.endpoints
        for count, entry in zip(routed, entries, strict=True)
    )
    live = [
        count for count, entry in zip(routed, entries, strict=True) if entry.endpoints
    ]
    assert all(live[:ROUTE_BACKENDS_MAX]), "each of the first entries has one"
    chosen = [
        WeightedEntry(entry.weight, count)
        for entry, count in zip(entries, routed, strict=True)
    ]
    assert all(
        0 < weight <= WEIGHT_MAX
        for of_entry in backend_weights(chosen)
        for weight in of_entry
    )
