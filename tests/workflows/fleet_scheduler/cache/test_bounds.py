"""The scheduler's memory of deleted objects is bounded, and so is the part of its fleet
that one task reads.

These tests need no server.
"""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow

from api_types.payloads.packing import pack_bytes
from scheduler import Fleet, snapshot
from tests.scheduler.builders import cluster, deployment, fleet, put_replicas
from workflows.fleet_scheduler import continue_as_new
from workflows.fleet_scheduler.cache.known_versions import ENDED_KEPT, KnownVersions
from workflows.fleet_scheduler.cache.reservations import RELEASED_KEPT, Reservations
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import SchedulerState


def test_the_newest_released_replicas_are_remembered() -> None:
    reservations = Reservations(Fleet())
    for number in range(RELEASED_KEPT + 5):
        reservations.release(f"r{number}")
    assert list(reservations.released) == [
        f"r{number}" for number in range(5, RELEASED_KEPT + 5)
    ]


def test_the_newest_deleted_objects_are_remembered() -> None:
    versions = KnownVersions()
    for number in range(ENDED_KEPT + 5):
        versions.accept(f"d{number}", "u", 1)
        versions.end(f"d{number}", "u")
    assert (versions["d4"].superseded, versions["d5"].superseded) == ([], ["u"])
    assert versions.wire()["present"] == {}


def test_a_large_fleet_is_read_in_several_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_pauses: list[int] = []

    async def sleep(pause: timedelta, **_: Any) -> None:
        assert pause > timedelta()
        at_pauses.append(cache.parts_left)

    monkeypatch.setattr(workflow, "sleep", sleep)
    monkeypatch.setattr(continue_as_new, "PARTS_AT_ONCE", 0)
    world = fleet(*(cluster(f"c{number}", 1) for number in range(4)))
    put_replicas(world, deployment(want=4), *(f"c{number}/0" for number in range(4)))
    parts = [pack_bytes(part) for part in snapshot.dump(world)]
    cache = SchedulerCache(SchedulerState(fleet=parts), lambda: 0)
    asyncio.run(continue_as_new.load(cache))
    assert at_pauses == list(range(len(parts) - 1, 0, -1))
    assert len(at_pauses) > 0
    assert len(list(cache.fleet.entries())) == 4
