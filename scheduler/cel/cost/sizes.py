"""Arithmetic of the static cost estimate: ranges that stop at 2^64-1 instead of overflowing.

Kubernetes computes in doubles and rounds up, and its answer decides what may be stored, so the same steps are taken here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

UNBOUNDED = 2**64 - 1


def times_factor(count: int, factor: float) -> int:
    """Multiply and round up."""
    product = math.ceil(float(count) * factor)
    return min(product, UNBOUNDED)


def plus(*costs: int) -> int:
    """Add."""
    return min(sum(costs), UNBOUNDED)


def times(a: int, b: int) -> int:
    """Multiply."""
    return min(a * b, UNBOUNDED)


class Size(NamedTuple):
    """How many characters, bytes, elements or entries a value may have."""

    low: int
    high: int

    def union(self, other: Size) -> Size:
        """The range that holds both."""
        return Size(min(self.low, other.low), max(self.high, other.high))

    def plus(self, other: Size) -> Size:
        """The size of both together."""
        return Size(plus(self.low, other.low), plus(self.high, other.high))

    def times(self, other: Size) -> Size:
        """The size of `other` repeated."""
        return Size(times(self.low, other.low), times(self.high, other.high))


UNKNOWN = Size(0, UNBOUNDED)


def exactly(count: int) -> Size:
    """A known size."""
    return Size(count, count)


class Entries(NamedTuple):
    """Sizes of what a list or map holds; of a list only `value` means something."""

    container: str
    key: Size
    value: Size

    def union(self, other: Entries | None) -> Entries | None:
        """The ranges that hold both, or None if the other is not known."""
        if other is None:
            return None
        return Entries(self.container, self.key.union(other.key), self.value.union(other.value))
