"""An InferenceCluster at a scripted cloud in virtual time, with a simulated cluster there."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from temporalio import activity

from api_types import labels
from api_types.messages.cluster_work import (
    EmptyCluster,
    RemainingObject,
    TeardownStepResult,
)
from tests.activities.clouds.builders import L4, a_pool
from tests.simulation.lives.virtual_plane import virtual_plane
from tests.workflows.cloud_cluster.control_plane import CloudCalls
from tests.workflows.environment.harness import ControlPlane, Json, reason
from tests.workflows.environment.simulated_clusters import (
    API_VERSION,
    SimulatedClusters,
)

NAME = "prod"


class AtCloud(SimulatedClusters):
    """Simulated clusters whose objects a test can remove."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.cloud = CloudCalls("GKE", **settings)
        self.emptied: list[str] = []
        self.holding: list[RemainingObject] = []

    @activity.defn
    async def empty_cluster(self, order: EmptyCluster) -> TeardownStepResult:
        assert order.connection.cloud is not None
        if held := self.holding:
            await asyncio.sleep(0.2)
            return TeardownStepResult(remaining=held)
        self.emptied.append(order.connection.cluster)
        return TeardownStepResult()

    def activities(self) -> list[Callable[..., Any]]:
        return [*super().activities(), self.empty_cluster, *self.cloud.calls()]


def a_class() -> Json:
    device = {
        "name": "gpu",
        "claim": "DRA",
        "driver": "gpu.nvidia.com",
        "deviceClassName": "gpu.nvidia.com",
        "count": 1,
    }
    spec = {"devices": [device], "provisioning": L4}
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceClass",
        "metadata": {"name": "l4"},
        "spec": spec,
    }


def a_cluster(**annotations: str) -> Json:
    metadata = {"name": NAME, "annotations": {labels.STACK: "external", **annotations}}
    spec = {
        "cluster": {"source": "GKE", "gke": {"region": "europe-west4"}},
        "nodePools": [a_pool()],
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceCluster",
        "metadata": metadata,
        "spec": spec,
    }


@asynccontextmanager
async def control_plane(
    clusters: AtCloud,
) -> AsyncIterator[tuple[ControlPlane, CloudCalls]]:
    """Start a control plane in virtual time whose cloud worker uses the scripted cloud."""
    async with virtual_plane(clusters) as plane:
        yield plane, clusters.cloud


def held_by(expected: str) -> Callable[[Json], bool]:
    """Return a predicate: the cluster's deletion is held for this reason."""
    return lambda seen: reason(seen, "Deleting") == expected
