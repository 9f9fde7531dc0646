"""A completed run of the scheduler leaves nothing in memory, however large its fleet."""

import asyncio
import gc
from typing import Any

import pytest
from temporalio import workflow

from api_types.payloads.packing import pack_bytes
from scheduler import Fleet, ScheduleRequest, apply, decide, snapshot
from tests.scheduler.builders import (
    IS_GPU,
    alone,
    ask,
    cluster,
    deployment,
    engine,
    fleet,
)
from workflows.fleet_scheduler import continue_as_new
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import SchedulerState

RUNS = 5
REPLICAS = 400


def a_full_fleet() -> Fleet:
    """Return a fleet whose replicas differ, so that they share little memory."""
    full = fleet(*(cluster(f"c{number}", 100) for number in range(8)))
    for number in range(REPLICAS):
        wanted = deployment(
            engine(f"e{number}", alone(ask(IS_GPU))),
            name=f"d{number}",
            uid=f"u{number}",
        )
        for decision in decide(full, [ScheduleRequest(f"r{number}", wanted)], 0):
            apply(full, decision)
    return full


class Run:
    """A run of the workflow.

    The SDK holds it in reference cycles, so only a garbage collection frees it.
    """

    def __init__(self, parts: list[str]) -> None:
        self.itself = self
        self.cache = SchedulerCache(SchedulerState(fleet=parts), lambda: 0)


def objects() -> int:
    """Count the objects in memory, whether collections visit them or not."""
    gc.collect()
    return len(gc.get_objects()) + gc.get_freeze_count()


@pytest.mark.slow
def test_successive_runs_of_a_large_fleet_do_not_grow_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def sleep(*_: Any, **__: Any) -> None:
        return

    monkeypatch.setattr(workflow, "sleep", sleep)
    monkeypatch.setattr(continue_as_new, "PARTS_AT_ONCE", 0)
    parts = [pack_bytes(part) for part in snapshot.dump(a_full_fleet())]
    counts = []
    for _ in range(RUNS):
        run = Run(list(parts))
        asyncio.run(continue_as_new.load(run.cache))
        assert len(list(run.cache.fleet.entries())) == REPLICAS
        del run
        counts.append(objects())
    # The first runs fill caches of bounded size.
    assert counts[-1] - counts[1] < REPLICAS, counts
