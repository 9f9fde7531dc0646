"""A silent cluster costs a cache no further surveys, and is staged on as soon as it answers again.

These tests use a real Temporal server.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from activities.messaging.entity_client import EntityClient
from activities.messaging.search_attributes import identity_at_start
from api_types import names
from api_types.messages.entities import RetryNow, SetSpec
from tests.workflows.environment.harness import ControlPlane, a_cache, eventually
from tests.workflows.environment.simulated_clusters import (
    a_class,
    a_cluster,
    activities_scheduled,
    simulated_plane,
)
from workflows import registry
from workflows.model_cache.clusters import SURVEYS

pytestmark = pytest.mark.testbed("shared")

# A task queue that only a worker of this test serves.
APART = "apart"


def a_worker_apart(client: Client, threads: ThreadPoolExecutor) -> Worker:
    entities = EntityClient()
    calls: list[Callable[..., Any]] = [
        entities.signal,
        entities.signal_many,
        entities.broadcast,
        entities.read_memo,
        entities.query_each,
        entities.survey,
    ]
    return Worker(
        client,
        task_queue=APART,
        workflows=registry.ENTITIES,
        activities=calls,
        workflow_runner=registry.runner(),
        activity_executor=threads,
    )


async def apply_apart(plane: ControlPlane, cluster: str) -> None:
    await plane.client.start_workflow(
        "InferenceCluster",
        None,
        id=names.workflow_id("InferenceCluster", "", cluster),
        task_queue=APART,
        **identity_at_start("InferenceCluster", "", cluster),
        start_signal="set_spec",
        start_signal_args=[SetSpec(manifest=a_cluster(cluster)).wire()],
    )


async def test_a_silent_cluster_is_surveyed_once_and_its_return_is_noticed_at_once() -> (
    None
):
    async with simulated_plane() as plane:

        async def surveys() -> int:
            return (
                await activities_scheduled(plane, "ModelCache", "qwen", "ml")
            ).count("survey")

        with ThreadPoolExecutor() as threads:
            await plane.apply(a_class())
            await plane.apply(a_cluster("eu"))
            await plane.ready("InferenceCluster", "eu")
            async with a_worker_apart(plane.client, threads):
                await apply_apart(plane, "us")
                await plane.ready("InferenceCluster", "us")
            await plane.apply(a_cache("qwen", "ml", "acme/qwen"))
            seen = await plane.ready("ModelCache", "qwen", "ml")
            assert [row["name"] for row in seen["status"]["clusters"]] == ["eu"]
            await eventually(
                surveys,
                lambda count: count == SURVEYS,
                what="all surveys for this spec",
            )
            # Further passes. Each would survey the fleet again if the first survey did
            # not count.
            for _ in range(3):
                await plane.handle("ModelCache", "qwen", "ml").signal(
                    "retry_now", RetryNow().wire()
                )
                await plane.ready("ModelCache", "qwen", "ml")
            assert await surveys() == SURVEYS
            async with a_worker_apart(plane.client, threads):
                await plane.until(
                    "ModelCache",
                    "qwen",
                    lambda seen: (
                        [row["name"] for row in seen["status"]["clusters"]]
                        == ["eu", "us"]
                    ),
                    "ml",
                    within=60,
                )
            assert await surveys() == SURVEYS
