"""A scheduler continues the state of a lost one, and detects a state that is not the
last scheduler's.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from temporalio.client import WorkflowHistory

from api_types import names
from tests.environment.waiting import LONGEST_PAUSE_SECONDS, TIMEOUT_SECONDS
from tests.workflows.environment.harness import (
    Json,
    a_deployment,
    condition,
    eventually,
)
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    ProtocolFleet,
    nodes_charged,
)
from tests.workflows.environment.simulated_fleet import (
    apply_clusters,
    simulated_fleet,
    until_known,
)
from workflows.fleet_scheduler.rebuild import takeover

pytestmark = pytest.mark.testbed("shared")

LOST = "lost on purpose"


@asynccontextmanager
async def fleet_of_one(nodes: int) -> AsyncIterator[ProtocolFleet]:
    """Start a fleet with one cluster, and a deployment that holds one of its nodes."""
    async with simulated_fleet(clients=1) as fleet:
        await apply_clusters(fleet, {"only": {"gpus": nodes}})
        await place(fleet, "first")
        yield fleet


async def place(fleet: ProtocolFleet, name: str) -> None:
    def placed(seen: Json | None) -> bool:
        return seen is not None and condition(seen, "ReplicasScheduled") == "True"

    await fleet.apply(a_deployment(name, NAMESPACE))
    await eventually(lambda: fleet.describe(name), placed, what=f"the place of {name}")


async def ledger(fleet: ProtocolFleet) -> dict[str, str]:
    found = await eventually(
        lambda: fleet.scheduler("ledger"),
        lambda seen: seen is not None,
        what="the ledger",
    )
    return {entry["uid"]: entry["cluster"] for entry in found}


async def epoch(fleet: ProtocolFleet) -> int:
    seen = await eventually(
        lambda: fleet.scheduler("describe"),
        lambda seen: seen is not None,
        what="the scheduler",
    )
    return int(seen["status"]["epoch"])


async def activities_since(fleet: ProtocolFleet, run_id: str) -> list[str]:
    """Return the names of the activities of the scheduler's runs since this one."""
    found: list[str] = []
    following = run_id
    while following:
        history: WorkflowHistory = await fleet.client.get_workflow_handle(
            names.FLEET_SCHEDULER_ID, run_id=following
        ).fetch_history()
        found += [
            event.activity_task_scheduled_event_attributes.activity_type.name
            for event in history.events
        ]
        following = history.events[
            -1
        ].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return [name for name in found if name]


async def current_run(fleet: ProtocolFleet) -> str:
    return (
        await fleet.client.get_workflow_handle(names.FLEET_SCHEDULER_ID).describe()
    ).run_id


async def until_at_rest(fleet: ProtocolFleet) -> None:
    """Wait until the scheduler has completed a task for every event of its history.

    A run that ended before that answers no query.
    """
    scheduler = fleet.client.get_workflow_handle(names.FLEET_SCHEDULER_ID)
    seen, before = 0, -1
    while not seen or seen != before:
        await asyncio.sleep(2 * LONGEST_PAUSE_SECONDS)
        raw = (await scheduler.describe()).raw_description
        is_busy = raw.HasField("pending_workflow_task") or raw.pending_activities
        before, seen = (
            seen,
            0 if is_busy else raw.workflow_execution_info.history_length,
        )


async def test_the_next_scheduler_reads_the_state_of_the_last_terminated_run_with_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A real server lists terminated runs, and workers answer queries for the state of such a run.

    `test_lost_state.py` has the decisions, also for a state older than the last
    scheduler's.
    """
    async with fleet_of_one(4) as fleet:
        before, lost = await ledger(fleet), await epoch(fleet)
        await until_at_rest(fleet)
        await fleet.terminate_scheduler(LOST)
        first_run = await current_run(fleet)
        await place(fleet, "second")
        assert (await ledger(fleet)).items() >= before.items()
        assert await epoch(fleet) > lost
        assert await fleet.scheduler("audit") == []
        names_of_activities = await activities_since(fleet, first_run)
        assert "read_lost_state" in names_of_activities
        assert "await_accounts" in names_of_activities
        assert not {"list_for_rebuild", "read_accounts"} & set(names_of_activities)

        # Runs that were terminated before their first task have no state.
        await until_at_rest(fleet)
        await fleet.lose_workers()
        for _ in range(2):
            await fleet.terminate_scheduler(LOST)
        first_run = await current_run(fleet)
        await fleet.start_workers()
        await place(fleet, "third")
        await until_at_rest(fleet)
        assert "list_for_rebuild" not in await activities_since(fleet, first_run)

        # Neither has a run that was terminated before it had read another run's state.
        reading = asyncio.Event()

        async def never(*_: object) -> list[str]:
            reading.set()
            await asyncio.Event().wait()
            return []

        with monkeypatch.context() as held:
            held.setattr(takeover, "listed_runs", never)
            await fleet.terminate_scheduler(LOST)
            await asyncio.wait_for(reading.wait(), TIMEOUT_SECONDS)
        await fleet.terminate_scheduler(LOST)
        first_run = await current_run(fleet)
        await place(fleet, "fourth")
        assert "list_for_rebuild" not in await activities_since(fleet, first_run)
        placed = await ledger(fleet)
        assert placed.items() >= before.items()
        assert nodes_charged(await fleet.scheduler("ledger")) == {("only", "gpus"): 4}
        assert await fleet.scheduler("audit") == []

        # Users who terminate the scheduler can request a rebuild.
        await fleet.terminate_scheduler("rebuild, for its ledger is in doubt")
        first_run = await current_run(fleet)
        await until_known(fleet, 1)
        assert await ledger(fleet) == placed
        assert "list_for_rebuild" in await activities_since(fleet, first_run)
