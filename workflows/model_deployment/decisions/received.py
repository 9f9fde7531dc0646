"""Checks that replicas can be started with the data of the scheduler.

A pass that could not start a replica would fail again and again.
"""

from api_types.messages.scheduling import (
    Evict,
    PlacementResponse,
    ReplicaEviction,
    ReplicaPlacement,
)
from scheduler import check_names, read_entry
from workflows.entity.arguments import UnusableMessage


def check_placed(message: PlacementResponse) -> None:
    """Check the placements of an answer. Raises `UnusableMessage`."""
    for placement in message.placements:
        _check("placements", placement)


def check_evicted(message: Evict) -> None:
    """Check a replica that may have to be started to be deleted.

    Raises `UnusableMessage`.
    """
    _check("eviction", message.eviction)


def _check(field: str, replica: ReplicaPlacement | ReplicaEviction) -> None:
    if not replica.entry:
        return
    try:
        check_names((("name", replica.name), ("cluster", replica.cluster)))
        read_entry(replica.entry)
    except ValueError as error:
        raise UnusableMessage(f"{field}: {replica.uid}: {error}") from error
