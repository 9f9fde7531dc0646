"""Limits on free nodes that follow from what a capacity adapter observed.

An observation only lowers what is declared: nothing is placed because a node happens to exist. What the adapter counted and what the ledger
charges are never both subtracted.
"""

from __future__ import annotations

from scheduler.model.inputs import PoolObservation, PoolView
from scheduler.model.policy import SchedulerOptions


def is_stale(seen: PoolObservation, now: int, options: SchedulerOptions) -> bool:
    """Whether an observation is too old to be used."""
    return now - seen.observed_at > options.observed_limit_seconds * 1000


def observed_limit(pool: PoolView, charged: int, now: int, options: SchedulerOptions) -> int | None:
    """Give the free nodes that the observation allows beyond what is charged, None if it says nothing.

    The nodes that exist or may still grow bound all charges; the admission queue bounds only what it has not admitted yet.
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
