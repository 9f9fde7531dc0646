"""Convert the share of each ModelService entry into the weights of backends.

An HTTPRoute has only backend weights: whole numbers up to a million, and at most
sixteen backends per rule. Scaling a deployment does not change the share of the entry
that selects it.
"""

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

from api_types.limits import ROUTE_BACKENDS_MAX

WEIGHT_MAX = 1_000_000


class WeightedEntry(NamedTuple):
    """An entry's share relative to the others, and its number of ready endpoints."""

    weight: int
    endpoints: int


def backend_weights(entries: Sequence[WeightedEntry]) -> list[list[int]]:
    """Return the weights of every entry's endpoints.

    The share of an entry without endpoints is distributed to the others in proportion.
    Before the weights are reduced, the endpoints of one entry differ by at most one,
    and the first ones have more.
    """
    factor = max(
        (-(-entry.endpoints // entry.weight) for entry in entries if entry.endpoints),
        default=1,
    )
    weights = [_spread(entry.weight * factor, entry.endpoints) for entry in entries]
    everyone = [weight for of_entry in weights for weight in of_entry]
    divisor = gcd(*everyone) or 1
    largest = max(everyone, default=0) // divisor
    if largest <= WEIGHT_MAX:
        return [[weight // divisor for weight in of_entry] for of_entry in weights]
    return [
        [
            max(1, _rounded(weight // divisor * WEIGHT_MAX, largest))
            for weight in of_entry
        ]
        for of_entry in weights
    ]


def routed_endpoints(
    entries: Sequence[WeightedEntry], most: int = ROUTE_BACKENDS_MAX
) -> list[int]:
    """Return how many endpoints of each entry are routed: all, or `most` in total.

    If there are too many, every entry with endpoints gets one while slots last. The
    remaining slots are distributed by weight.
    """
    if sum(entry.endpoints for entry in entries) <= most:
        return [entry.endpoints for entry in entries]
    given = [0] * len(entries)
    nonempty = [number for number, entry in enumerate(entries) if entry.endpoints]
    for number in nonempty[:most]:
        given[number] = 1
    while rest := most - sum(given):
        # The next round distributes the slots that an entry cannot use to the others.
        open_entries = [
            number
            for number, entry in enumerate(entries)
            if 0 < given[number] < entry.endpoints
        ]
        weights = [entries[number].weight for number in open_entries]
        shares = _by_largest_remainder(rest, weights)
        for number, slots in zip(open_entries, shares, strict=True):
            given[number] = min(entries[number].endpoints, given[number] + slots)
    return given


def _spread(total: int, count: int) -> list[int]:
    if not count:
        return []
    each, more = divmod(total, count)
    return [each + 1] * more + [each] * (count - more)


def _rounded(dividend: int, divisor: int) -> int:
    quotient, remainder = divmod(dividend, divisor)
    return quotient + (
        2 * remainder > divisor or (2 * remainder == divisor and quotient % 2 == 1)
    )


def _by_largest_remainder(slots: int, weights: Sequence[int]) -> list[int]:
    total = sum(weights)
    given = [slots * weight // total for weight in weights]
    by_remainder = sorted(
        range(len(weights)), key=lambda number: -(slots * weights[number] % total)
    )
    for number in by_remainder[: slots - sum(given)]:
        given[number] += 1
    return given
