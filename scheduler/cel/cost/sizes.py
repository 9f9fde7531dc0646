"""Arithmetic of the cost estimate: ranges that saturate at 2^64-1.

Kubernetes computes in doubles and rounds up. The result decides whether a selector may
be stored, so this module computes in the same steps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

UNBOUNDED = 2**64 - 1


def times_factor(count: int, factor: float) -> int:
    product = math.ceil(float(count) * factor)
    return min(product, UNBOUNDED)


def plus(*costs: int) -> int:
    return min(sum(costs), UNBOUNDED)


def times(a: int, b: int) -> int:
    return min(a * b, UNBOUNDED)


class Size(NamedTuple):
    """The number of characters, bytes, elements or entries that a value may have."""

    low: int
    high: int

    def union(self, other: Size) -> Size:
        """Return the smallest range that includes both."""
        return Size(min(self.low, other.low), max(self.high, other.high))

    def plus(self, other: Size) -> Size:
        """Return the sum of both."""
        return Size(plus(self.low, other.low), plus(self.high, other.high))

    def times(self, other: Size) -> Size:
        """Return the size of `other` repeated."""
        return Size(times(self.low, other.low), times(self.high, other.high))


UNKNOWN = Size(0, UNBOUNDED)


def exactly(count: int) -> Size:
    return Size(count, count)


class ElementSizes(NamedTuple):
    """Sizes of the content of a list or map; a list has no keys."""

    container: str
    key: Size
    value: Size

    def union(self, other: ElementSizes | None) -> ElementSizes | None:
        """Return the ranges that include both, or None if the other is not known."""
        if other is None:
            return None
        return ElementSizes(
            self.container, self.key.union(other.key), self.value.union(other.value)
        )
