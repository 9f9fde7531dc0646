"""A cluster of the testbed as the control cluster.

It serves the Gateway API too, and the default fleet has no other.
"""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.routing.activities import RoutingActivities
from activities.routing.control_cluster import ControlCluster
from api_types import names
from api_types.sections.clusters import ControlClusterSettings
from testbed.running import Running
from tests.activities.environment.asking import asked_by
from tests.activities.environment.cluster_under_test import (
    ClusterUnderTest,
    cluster_from,
)

SETTINGS = ControlClusterSettings(name="control-kubeconfig")


@dataclass
class Control:
    """The control cluster, its activities, and a namespace of the test."""

    api: ClusterApi
    activities: RoutingActivities
    namespace: str
    cluster: ClusterUnderTest

    async def run(
        self, activity: Any, order: Any, owner: str = "", *, attempt: int = 1
    ) -> Any:
        """Run an activity for the workflow that owns the order."""
        kind = owner or getattr(order, "owner", "") or "ModelService"
        caller = (
            names.workflow_id(kind, order.namespace, order.name)
            if hasattr(order, "namespace")
            else "inferencegateway/default"
        )
        return await asked_by(caller, attempt=attempt).run(activity, order)

    async def get(self, kind: GroupVersionKind, name: str) -> Json | None:
        return await self.api.get(ObjectId(kind, self.namespace, name))

    async def names(self, kind: GroupVersionKind) -> list[str]:
        found = await self.api.list(Selection(kind, self.namespace))
        return sorted(item["metadata"]["name"] for item in found.items)


@pytest_asyncio.fixture
async def control(
    testbed: Running, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Control]:
    kubeconfig = testbed.clusters["prod-eu"].kubeconfig.read_text()
    made = await cluster_from("control", kubeconfig, tmp_path_factory.mktemp("secrets"))
    cluster = ControlCluster(made.pool, SETTINGS)
    api, namespace = await cluster.api(), f"t-{uuid.uuid4().hex[:8]}"
    yield Control(api, RoutingActivities(cluster), namespace, made)
    await api.delete(ObjectId(kinds.NAMESPACE, "", namespace), propagation="Background")
    await made.pool.close()
