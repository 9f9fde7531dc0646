"""Who waits for capacity, and for how long it is kept for them, where the fleet's queue order is strict.

Small requests could for ever take the nodes that a large one waits for. With `StrictOrder` a request that found too little room holds its
candidate pools for at most `holdForSeconds`. A hold that ran out does not begin again while its deployment still waits, so a request that
can never be met stops nobody for long. With `BestEffort` nobody holds anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.model.inputs import DeploymentView

STRICT_ORDER = "StrictOrder"
BEST_EFFORT = "BestEffort"
Owner = tuple[str, str]


@dataclass(frozen=True, slots=True)
class QueueReservation:
    """A deployment that waits for capacity; `since` is when it was first found waiting, in ms."""

    deployment: DeploymentView
    priority: int
    since: int

    @property
    def owner(self) -> Owner:
        """Whose hold it is."""
        return (self.deployment.namespace, self.deployment.name)

    @property
    def place(self) -> tuple[int, int, Owner]:
        """Its place in the queue; lower comes first."""
        return (-self.priority, self.since, self.owner)


def ahead_of(holds: Mapping[Owner, QueueReservation], owner: Owner, priority: int, now: int, hold_seconds: int) -> list[QueueReservation]:
    """Give the holds in force that a deployment has to respect, in queue order."""
    mine = holds.get(owner)
    # Who does not wait yet stands behind everybody of its priority.
    place = mine.place if mine else (-priority, now + 1, owner)
    ahead = [hold for hold in holds.values() if hold.owner != owner and hold.place < place and now - hold.since <= hold_seconds * 1000]
    return sorted(ahead, key=lambda hold: hold.place)


def next_expiry(holds: Mapping[Owner, QueueReservation], now: int, hold_seconds: int) -> int | None:
    """Give the time in ms at which the next hold in force runs out, None if none is."""
    ends = [hold.since + hold_seconds * 1000 + 1 for hold in holds.values() if now - hold.since <= hold_seconds * 1000]
    return min(ends, default=None)
