"""Queue reservations: capacity that is reserved for waiting deployments.

Without reservations, a stream of small requests could take the nodes that a large
request waits for, without end. With `StrictOrder`, a request that found too little
capacity reserves its candidate pools for at most `holdForSeconds`. An expired
reservation is not renewed while its deployment still waits, so a request that can never
fit blocks others only for that time. With `BestEffort`, nothing is reserved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.model.identity import Owner
from scheduler.model.inputs import DeploymentView


@dataclass(frozen=True, slots=True)
class QueueReservation:
    """A deployment that waits for capacity.

    `since` is when it was first found waiting, in ms.
    """

    deployment: DeploymentView
    priority: int
    since: int

    @property
    def owner(self) -> Owner:
        return (self.deployment.namespace, self.deployment.name)

    @property
    def queue_position(self) -> tuple[int, int, Owner]:
        """Return the sort key in the queue; lower comes first."""
        return (-self.priority, self.since, self.owner)

    def in_force(self, now: int, hold_for_seconds: int) -> bool:
        """Return whether the reservation has not expired yet."""
        return now - self.since <= hold_for_seconds * 1000


def ahead_of(
    reservations: Mapping[Owner, QueueReservation],
    owner: Owner,
    priority: int,
    now: int,
    hold_for_seconds: int,
) -> list[QueueReservation]:
    """Return the reservations in force that come before a deployment, in queue order."""
    own = reservations.get(owner)
    # A deployment that does not wait yet comes after all waiting ones of its priority.
    position = own.queue_position if own else (-priority, now + 1, owner)
    ahead = [
        reservation
        for reservation in reservations.values()
        if reservation.owner != owner
        and reservation.queue_position < position
        and reservation.in_force(now, hold_for_seconds)
    ]
    return sorted(ahead, key=lambda reservation: reservation.queue_position)
