"""The server's clock runs days ahead and is corrected.

No receiver rejects a message because of that.
"""

import asyncio
from datetime import timedelta

import pytest

from api_types import names
from api_types.messages.scheduling import Forget
from tests.simulation.lives.virtual_plane import (
    VirtualPlane,
    on_a_virtual_loop,
    virtual_plane,
)
from tests.simulation.poisons import Poison
from tests.simulation.server import HISTORY_EVENTS
from tests.workflows.environment.harness import a_deployment, condition
from tests.workflows.environment.simulated_clusters import a_class, a_cluster

STEP_SECONDS = timedelta(days=3).total_seconds()
MINUTE_SECONDS = 60.0
TEAM = "ml-team"


async def placed(plane: VirtualPlane, name: str) -> None:
    await plane.apply(a_deployment(name, TEAM))
    await plane.until(
        "ModelDeployment",
        name,
        lambda seen: condition(seen, "ReplicasScheduled") == "True",
        TEAM,
    )


async def terminated(plane: VirtualPlane, workflow_id: str) -> None:
    await plane.client.get_workflow_handle(workflow_id).terminate("lost on purpose")


@pytest.mark.parametrize(
    "lost",
    ["", names.FLEET_SCHEDULER_ID, names.workflow_id("InferenceCluster", "", "eu")],
)
@on_a_virtual_loop
async def test_replicas_start_and_end_within_a_minute_after_the_clock_is_corrected(
    lost: str,
) -> None:
    async with virtual_plane() as plane:
        clock = plane.world.clock
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        await plane.ready("InferenceCluster", "eu")
        clock.step(STEP_SECONDS)
        await placed(plane, "ahead")
        if lost:
            # The successor numbers its messages with a time that is days ahead.
            await terminated(plane, lost)
            await plane.apply(a_cluster("eu"))
            await placed(plane, "taken-over")
        clock.step(-STEP_SECONDS)
        begun = clock.seconds()
        if lost:
            await terminated(plane, lost)
            await plane.apply(a_cluster("eu"))
        await placed(plane, "after")
        await plane.delete("ModelDeployment", "ahead", TEAM)
        await plane.gone("ModelDeployment", "ahead", TEAM)
        assert clock.seconds() - begun < MINUTE_SECONDS


async def replica_of(plane: VirtualPlane, name: str) -> str:
    seen = await plane.describe("ModelDeployment", name, TEAM)
    (placement,) = seen["status"]["placements"]
    return names.workflow_id("ModelReplica", TEAM, placement["replica"])


async def queries_of_scheduler(plane: VirtualPlane) -> int:
    scheduled = await plane.activities_scheduled("FleetScheduler", "default")
    return scheduled.count("ask_each")


@on_a_virtual_loop
async def test_a_silent_replica_is_queried_again_after_the_clock_is_corrected() -> None:
    """The scheduler hears that a deployment is gone, and asks its replica."""
    async with virtual_plane() as plane:
        clock, poisons = plane.world.clock, plane.world.server.poisons
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        await plane.ready("InferenceCluster", "eu")
        clock.step(STEP_SECONDS)
        await placed(plane, "lost")
        replica = await replica_of(plane, "lost")
        poisons[replica] = Poison.SILENT
        deployment = names.workflow_id("ModelDeployment", TEAM, "lost")
        uid = (await plane.describe("ModelDeployment", "lost", TEAM))["metadata"]["uid"]
        await terminated(plane, deployment)
        forget = Forget(
            kind="ModelDeployment", name="lost", namespace=TEAM, uid=uid, gone=True
        )
        scheduler = plane.client.get_workflow_handle(names.FLEET_SCHEDULER_ID)
        await scheduler.signal("forget", forget.wire())
        await asyncio.sleep(MINUTE_SECONDS / 2)
        clock.step(-STEP_SECONDS)
        asked = await queries_of_scheduler(plane)
        assert asked
        await asyncio.sleep(2 * MINUTE_SECONDS)
        assert await queries_of_scheduler(plane) > asked
        poisons.clear()


@on_a_virtual_loop
async def test_a_wait_goes_on_in_the_next_run_after_the_clock_is_corrected() -> None:
    """A deleted deployment reports its end again and again while no scheduler answers."""
    async with virtual_plane() as plane:
        clock, server = plane.world.clock, plane.world.server
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        await plane.ready("InferenceCluster", "eu")
        clock.step(STEP_SECONDS)
        await placed(plane, "ends")
        server.poisons[names.FLEET_SCHEDULER_ID] = Poison.FAILING
        await plane.delete("ModelDeployment", "ends", TEAM)

        def reports() -> int:
            return len(plane.signals(names.FLEET_SCHEDULER_ID, "forget"))

        await asyncio.sleep(MINUTE_SECONDS / 2)
        assert reports()
        clock.step(-STEP_SECONDS)
        ends = names.workflow_id("ModelDeployment", TEAM, "ends")
        runs = len(server.executions[ends].runs)
        server.events_max = 1
        await plane.client.get_workflow_handle(ends).signal(
            "delete", {"requestId": "x"}
        )
        await asyncio.sleep(1.0)
        server.events_max = HISTORY_EVENTS
        assert len(server.executions[ends].runs) > runs
        before = reports()
        await asyncio.sleep(3 * MINUTE_SECONDS)
        assert reports() > before
        server.poisons.clear()
