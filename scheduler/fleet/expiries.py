"""Time limits whose end can change the answer to a waiting request.

No message announces the end of such a limit, so the scheduler decides the waiting
requests again. The ends of some limits are rounded up. The preemption of many
deployments would otherwise cause as many decisions about all waiting requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scheduler.fleet.fleet import Fleet

_STEP_MS = 10_000


def expiries(fleet: Fleet) -> Iterator[int]:
    """Yield the ends of all limits, in ms. A limit no longer applies at its end."""
    options = fleet.options
    for reservation in fleet.queue_reservations.values():
        yield reservation.since + options.hold_for_seconds * 1000 + 1
    for at in fleet.preempted_at.values():
        yield _rounded(at + options.preemption_cooldown_seconds * 1000)
    for at in fleet.refused.values():
        yield _rounded(at + options.refusal_seconds * 1000)


def next_expiry(fleet: Fleet, now: int) -> int | None:
    """Return the next end of a limit, in ms; None without one."""
    return min((end for end in expiries(fleet) if end > now), default=None)


def drop_expired(fleet: Fleet, now: int) -> None:
    """Forget the limits that ended."""
    options = fleet.options
    _drop(fleet.preempted_at, options.preemption_cooldown_seconds * 1000, now)
    _drop(fleet.refused, options.refusal_seconds * 1000, now)


def _drop(since: dict[Any, int], limit_ms: int, now: int) -> None:
    for key in [key for key, at in since.items() if _rounded(at + limit_ms) <= now]:
        del since[key]


def _rounded(at: int) -> int:
    return -(-at // _STEP_MS) * _STEP_MS
