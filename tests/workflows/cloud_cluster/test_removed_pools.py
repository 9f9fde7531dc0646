"""Removing a pool while its workflow loses its state, at a scripted cloud."""

from typing import Any

from api_types import names
from tests.activities.clouds.builders import a_pool
from tests.simulation.lives.virtual_plane import on_a_virtual_loop
from tests.workflows.cloud_cluster.at_cloud import (
    NAME,
    AtCloud,
    a_class,
    a_cluster,
    control_plane,
)
from tests.workflows.environment.harness import Json, message

DRAIN_SECONDS = 6


def with_pools(*pools: dict[str, Any]) -> Json:
    cluster = a_cluster()
    return {**cluster, "spec": {**cluster["spec"], "nodePools": list(pools)}}


@on_a_virtual_loop
async def test_a_pool_removed_while_the_state_is_lost_is_deleted_and_its_cluster_stays() -> (
    None
):
    async with control_plane(AtCloud(pool_drain_wait=DRAIN_SECONDS)) as (
        plane,
        at_cloud,
    ):
        await plane.apply(a_class())
        await plane.apply(with_pools(a_pool("a"), a_pool("b")))
        seen = await plane.ready("InferenceCluster", NAME)
        await plane.apply(with_pools(a_pool("a")))
        await plane.until(
            "InferenceCluster",
            NAME,
            lambda seen: "pool b was removed" in message(seen, "ClusterReady"),
        )
        cloud = plane.client.get_workflow_handle(
            names.cloud_cluster_id(NAME, seen["metadata"]["uid"])
        )
        await cloud.terminate("lost")
        assert "pool/b" in at_cloud.cloud.things
        # The next order starts the workflow again.
        await plane.apply(with_pools(a_pool("a", maxNodeCount=4)))
        await at_cloud.until_cloud(
            lambda cloud: cloud.written("delete") == ["pool/b"], "the end of the pool"
        )
        await plane.ready("InferenceCluster", NAME)
        assert at_cloud.cloud.written("create").count("pool/a") == 1
