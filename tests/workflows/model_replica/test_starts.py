"""When a replica's workflow is started, and when an earlier one still occupies its
name, on a real Temporal server.
"""

import pytest

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
