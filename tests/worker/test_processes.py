"""Several worker processes share the task queues.

Work continues if one is killed, hangs or is slow.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from activities.messaging.sending import ensure_scheduler
from api_types import names
from api_types.clock import utc_now
from tests.environment import idle_clusters
from tests.scheduler.builders import IS_GPU, alone, ask, deployment, engine
from tests.worker.queue_load import (
    LOAD_QUEUE,
    Load,
    QueueLoad,
    completed,
    start_load,
    watchers,
)
from tests.workflows.environment.harness import (
    WorkerProcess,
    eventually,
    worker_process,
)
from tests.workflows.environment.protocol_fleet import ReportedCluster
from tests.workflows.environment.short_runs import address_of, server_with_short_runs
from tests.workflows.fleet_scheduler.requests import place
from workflows.entity.calls import activity_options

pytestmark = pytest.mark.testbed("shared")

BATCH = 20
FIRST, SECOND = (
    [f"{name}-{number}" for number in range(BATCH)] for name in ("first", "second")
)
DECIDE = "decide"
# Instead of 30 s. A task that a hanging process takes is lost for this time.
HEARTBEAT_TIMEOUT = timedelta(seconds=6)
# Twice that time, with the pauses between attempts, for a busy machine.
MOVED_WITHIN = 40.0
# The minimum share of each process.
SHARE = 1 / 5


@dataclass
class Processes:
    """Worker processes of one server, by name."""

    client: Client
    by_name: dict[str, WorkerProcess]

    async def start(self, *chosen: str) -> None:
        await asyncio.gather(
            *(asyncio.to_thread(self.by_name[name].start) for name in chosen)
        )

    async def watches_of(self, load: Load, **since: Any) -> dict[str, int]:
        """Return the number of clusters that each process watches."""
        watching = list((await watchers(load, **since)).values())
        running = {
            name: process
            for name, process in self.by_name.items()
            if process.is_running()
        }
        return {
            name: sum(identity.endswith(f"/{each.pid}") for identity in watching)
            for name, each in running.items()
        }


@asynccontextmanager
async def processes(folder: Path, **delays: str) -> AsyncIterator[Processes]:
    """A server, and worker processes that are not started yet.

    Each has a delay for its requests, in seconds.
    """
    async with server_with_short_runs(events=10_000) as client:
        made = {
            name: worker_process(
                address_of(client),
                folder / "secrets",
                folder / f"{name}.log",
                idle_clusters.__name__,
                **{idle_clusters.SECONDS_VARIABLE: delay},
            )
            for name, delay in delays.items()
        }
        async with Worker(client, task_queue=LOAD_QUEUE, workflows=[QueueLoad]):
            try:
                yield Processes(client, made)
            finally:
                for process in made.values():
                    process.kill()


@pytest.fixture(autouse=True)
def short_heartbeat_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONNECT", "WATCH", "APPLY", "TEARDOWN_STEP"):
        options = getattr(activity_options, name)
        config = options.config.copy()
        config["heartbeat_timeout"] = HEARTBEAT_TIMEOUT
        monkeypatch.setattr(activity_options, name, options._replace(config=config))


async def decide_one(client: Client, number: int) -> None:
    """Create one more request for the scheduler."""
    scheduler = client.get_workflow_handle(names.FLEET_SCHEDULER_ID)

    async def decisions() -> int:
        history = await scheduler.fetch_history()
        markers = [event.marker_recorded_event_attributes for event in history.events]
        return sum(
            f'"{DECIDE}"'.encode() in marker.details["data"].payloads[0].data
            for marker in markers
            if "data" in marker.details
        )

    before = await decisions()
    await scheduler.signal(
        "place",
        place(deployment(engine("main", alone(ask(IS_GPU))), name=f"d{number}")).wire(),
    )
    await eventually(
        decisions,
        lambda count: count > before,
        within=MOVED_WITHIN,
        what=f"decision {number}",
    )


async def test_work_continues_when_one_of_three_workers_is_killed_one_hangs_and_one_is_slow(
    tmp_path: Path,
) -> None:
    async with processes(tmp_path, killed="0", hanging="0", slow="0.3") as world:
        await world.start("killed", "hanging")
        await ensure_scheduler(world.client)
        await world.client.get_workflow_handle(names.FLEET_SCHEDULER_ID).signal(
            "report_cluster", ReportedCluster("c", {"p": 9}).report(1).wire()
        )
        await decide_one(world.client, 1)

        # Two processes share the watches. A third one gets its share of later watches.
        first = await start_load(world.client, FIRST)
        shared = await eventually(
            lambda: world.watches_of(first),
            lambda seen: sum(seen.values()) == BATCH,
            what="the first watches",
        )
        assert min(shared.values()) >= SHARE * BATCH, shared
        await world.start("slow")
        second = await start_load(world.client, SECOND)
        shared = await eventually(
            lambda: world.watches_of(second),
            lambda seen: sum(seen.values()) == BATCH,
            what="the second watches",
        )
        assert shared["slow"] >= SHARE / 2 * BATCH, shared

        lost_at = utc_now()
        world.by_name["killed"].kill()
        world.by_name["hanging"].hang()
        for cluster in FIRST[:5]:
            await first[cluster].signal(QueueLoad.work)
        await asyncio.gather(
            decide_one(world.client, 2),
            eventually(
                lambda: completed(first, FIRST[:5]),
                lambda done: done == 5,
                within=MOVED_WITHIN,
                what="connects, applies, teardowns",
            ),
            *(
                eventually(
                    partial(world.watches_of, load, since=lost_at),
                    lambda seen: seen["slow"] == BATCH,
                    within=MOVED_WITHIN,
                    what="all watches on the worker that is left",
                )
                for load in (first, second)
            ),
        )
