"""How the share of each entry of a ModelService becomes the weights of backends.

An HTTPRoute knows weights of backends only, whole numbers up to a million, and at most sixteen backends per rule. Scaling a deployment does
not change the share of the entry that selects it.
"""

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

from api_types.limits import ROUTE_BACKENDS_MAX

WEIGHT_MAX = 1_000_000


class Entry(NamedTuple):
    """The share of an entry relative to the others, and how many endpoints it has that can answer."""

    weight: int
    endpoints: int


def backend_weights(entries: Sequence[Entry]) -> list[list[int]]:
    """Give the weights of every entry's endpoints; the share of an entry without any goes to the others in proportion.

    Endpoints of one entry differ by at most one before the weights are reduced; the first ones have more.
    """
    factor = max((-(-entry.endpoints // entry.weight) for entry in entries if entry.endpoints), default=1)
    weights = [_spread(entry.weight * factor, entry.endpoints) for entry in entries]
    everyone = [weight for of_entry in weights for weight in of_entry]
    divisor = gcd(*everyone) or 1
    largest = max(everyone, default=0) // divisor
    if largest <= WEIGHT_MAX:
        return [[weight // divisor for weight in of_entry] for of_entry in weights]
    return [[max(1, _rounded(weight // divisor * WEIGHT_MAX, largest)) for weight in of_entry] for of_entry in weights]


def routed_endpoints(entries: Sequence[Entry], most: int = ROUTE_BACKENDS_MAX) -> list[int]:
    """Give how many endpoints of each entry are routed: all, or at most `most` together.

    Then every entry that has endpoints gets one, as long as there are any, and the rest are given out by weight.
    """
    if sum(entry.endpoints for entry in entries) <= most:
        return [entry.endpoints for entry in entries]
    given = [0] * len(entries)
    for number in [number for number, entry in enumerate(entries) if entry.endpoints][:most]:
        given[number] = 1
    while rest := most - sum(given):
        # What an entry cannot use is given to the others in the next round.
        open_entries = [number for number, entry in enumerate(entries) if 0 < given[number] < entry.endpoints]
        for number, slots in zip(
            open_entries, _by_largest_remainder(rest, [entries[number].weight for number in open_entries]), strict=True
        ):
            given[number] = min(entries[number].endpoints, given[number] + slots)
    return given


def _spread(total: int, count: int) -> list[int]:
    if not count:
        return []
    each, more = divmod(total, count)
    return [each + 1] * more + [each] * (count - more)


def _rounded(dividend: int, divisor: int) -> int:
    """Divide and round half to even."""
    quotient, remainder = divmod(dividend, divisor)
    return quotient + (2 * remainder > divisor or (2 * remainder == divisor and quotient % 2 == 1))


def _by_largest_remainder(slots: int, weights: Sequence[int]) -> list[int]:
    total = sum(weights)
    given = [slots * weight // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda number: -(slots * weights[number] % total))
    for number in by_remainder[: slots - sum(given)]:
        given[number] += 1
    return given
