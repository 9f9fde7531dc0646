"""When a replica's workflow is started, and when an earlier one still occupies its
name, on a real Temporal server.
"""

import pytest
from temporalio.common import WorkflowIDReusePolicy

from activities.messaging import sending
from activities.messaging.sending import StartResult, start_replica
from api_types import names
from api_types.messages.entities import Delete, StartReplica
from api_types.messages.signals import ModelReplicaSignals
from tests.workflows.environment.simulated_clusters import simulated_plane

pytestmark = pytest.mark.testbed("shared")


def a_start(uid: str) -> StartReplica:
    return StartReplica(
        uid=uid,
        namespace="ml",
        name="qwen-0",
        deployment="qwen",
        deployment_uid="d",
        cluster="eu",
        index=0,
        generation=1,
        spec={},
    )


async def test_a_name_is_occupied_until_its_workflow_completes_and_a_uid_completes_once() -> (
    None
):
    async with simulated_plane() as plane:
        replica = plane.client.get_workflow_handle(
            names.workflow_id("ModelReplica", "ml", "qwen-0")
        )

        async def start(uid: str) -> StartResult:
            return await start_replica(plane.client, a_start(uid))

        assert await start("first") is StartResult.RUNS
        assert await start("first") is StartResult.RUNS
        assert await start("second") is StartResult.TAKEN
        await replica.terminate("an accident")
        assert await start("second") is StartResult.UNFINISHED
        assert await start("first") is StartResult.RUNS
        await replica.signal(
            ModelReplicaSignals.DELETE.name, Delete(uid="first").wire()
        )
        await replica.result()
        assert await start("first") is StartResult.COMPLETED
        assert await start("second") is StartResult.RUNS


async def test_a_request_that_arrives_late_starts_no_replica_that_has_completed() -> (
    None
):
    """The activity gave it up and was repeated, and the replica has ended since."""
    async with simulated_plane() as plane:
        workflow_id = names.workflow_id("ModelReplica", "ml", "qwen-0")
        replica = plane.client.get_workflow_handle(workflow_id)

        async def run_of(uid: str) -> str:
            assert await start_replica(plane.client, a_start(uid)) is StartResult.RUNS
            await replica.signal(
                ModelReplicaSignals.DELETE.name, Delete(uid=uid).wire()
            )
            await replica.result()
            return (await replica.describe()).run_id

        first = await run_of("first")
        second = await run_of("second")
        late = a_start("second")
        reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE
        request_id = f"second/{first}"
        assert await sending._start(plane.client, workflow_id, late, reuse, request_id)
        assert (await replica.describe()).run_id == second
        assert await run_of("third") != second
