"""Limits on free nodes from the observations of a capacity adapter.

An observation only lowers the declared capacity: an existing node alone is no reason to
place a replica. Nodes that both the adapter and the ledger count are subtracted only
once.
"""

from __future__ import annotations

from scheduler.model.inputs import PoolObservation, PoolView
from scheduler.model.policy import SchedulerOptions


def is_stale(seen: PoolObservation, now: int, options: SchedulerOptions) -> bool:
    """Return whether an observation is too old to be used."""
    return now - seen.observed_at > options.observed_limit_seconds * 1000


def observed_limit(
    pool: PoolView, charged: int, now: int, options: SchedulerOptions
) -> int | None:
    """Return the free nodes that the observation allows beyond the charged ones.

    Return None if it sets no limit. The existing and growable nodes bound all charges.
    The admission queue bounds only charges that it has not admitted yet.
    """
    seen = pool.observed
    if seen is None or is_stale(seen, now, options):
        return None
    limits = []
    if seen.schedulable >= 0:
        limits.append(seen.schedulable + seen.growable - charged)
    if seen.queue_free >= 0:
        limits.append(seen.queue_free - max(0, charged - seen.admitted))
    return min(limits) if limits else None
