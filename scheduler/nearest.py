"""The nearest miss: what would have to be freed or added, and where, to place one more replica."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Miss:
    """One pool that almost took an engine; `group` is the headline text it belongs to, `gap` the nodes that are missing."""

    group: str
    gap: int
    cluster: str
    pool: str
    text: str


def nearest(misses: Iterable[Miss]) -> Miss | None:
    """Give the smallest gap, then the first cluster and pool by name; None without any."""
    return min(misses, key=lambda m: (m.gap, m.cluster, m.pool), default=None)
