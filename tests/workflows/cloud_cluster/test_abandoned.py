"""Abandoning the deletion of a cloud cluster with kubectl, on a real Temporal server
with a scripted cloud.
"""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from temporalio.worker import Worker

from activities.clusters.emptying import NOT_OURS
from api_types import labels, queues
from api_types.messages.cluster_work import RemainingObject
from tests.front.front_under_test import a_front
from tests.workflows.cloud_cluster.at_cloud import (
    NAME,
    AtCloud,
    a_class,
    a_cluster,
    held_by,
)
from tests.workflows.environment.harness import eventually
from tests.workflows.environment.simulated_clusters import simulated_plane

pytestmark = pytest.mark.testbed("shared")


async def test_a_cluster_whose_deletion_does_not_end_is_abandoned_through_the_front(
    tmp_path: Path,
) -> None:
    clusters = AtCloud()
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(simulated_plane(clusters))
        await stack.enter_async_context(
            Worker(
                plane.client, task_queue=queues.CLOUD, activities=clusters.cloud.calls()
            )
        )
        front = await stack.enter_async_context(a_front(plane, tmp_path))
        await plane.apply(a_class())
        await plane.apply(a_cluster())
        await plane.ready("InferenceCluster", NAME)
        clusters.holding = [RemainingObject(id="v1/Service/shop/website", why=NOT_OURS)]
        await plane.delete("InferenceCluster", NAME)
        await plane.until("InferenceCluster", NAME, held_by("LoadBalancersRemaining"))
        # A cluster that a busy front does not list yet is NotFound there.
        await eventually(
            lambda: front.kubectl("annotate", f"ic/{NAME}", "note=x", fails=True),
            lambda refusal: "is being deleted" in refusal,
            what="the refusal of another annotation",
        )
        told = await front.kubectl("annotate", f"ic/{NAME}", f"{labels.ABANDON}=true")
        assert told == f"inferencecluster.modelplane.ai/{NAME} annotated\n"
        await plane.gone("InferenceCluster", NAME)
        assert clusters.cloud.cloud.written("delete") == []
