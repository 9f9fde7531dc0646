"""The server's clock runs days ahead and is corrected.

No receiver rejects a message because of that.
"""

from datetime import timedelta

import pytest

from api_types import names
from tests.simulation.lives.virtual_plane import (
    VirtualPlane,
    on_a_virtual_loop,
    virtual_plane,
)
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
