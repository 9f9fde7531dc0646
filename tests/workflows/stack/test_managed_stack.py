"""An InferenceCluster without a serving stack gets one, keeps it, and takes it away again: real API server, real helm, real Temporal.

The charts are small ones of the tests, and a stand-in acts as Envoy's controllers; the worker is the process that users run.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from kubernetes.client import ApiClient

from activities.secrets.selection import secret_store
from api_types import labels
from api_types.clock import utc_now
from api_types.settings import SecretSettings, Settings
from testbed.running import ClusterRunning
from tests.environment.stack_testbed import CLUSTER, StackCluster, stack_cluster
from tests.environment.summary import Summary
from tests.workflows.conftest import documents, put_secrets
from tests.workflows.environment.harness import ControlPlane, Json, a_worker, connected, reason
from tests.workflows.environment.replaying import replay_all

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(300)]

SERVICES = "/api/v1/namespaces/envoy-gateway-system/services"


@dataclass
class Managed:
    """The control plane, and the cluster without a stack."""

    plane: ControlPlane
    world: StackCluster

    async def apply(self) -> None:
        """Apply the cluster, its class first."""
        for file in ("classes.yaml", "clusters.yaml"):
            for document in documents(self.world.running.manifests / file):
                await self.plane.apply(document)

    async def seen(self) -> Json:
        return await self.plane.describe("InferenceCluster", CLUSTER)


@pytest.fixture(scope="module")
async def managed(
    tmp_path_factory: pytest.TempPathFactory, kube: Callable[[ClusterRunning], ApiClient], pytestconfig: pytest.Config
) -> AsyncIterator[Managed]:
    folder = tmp_path_factory.mktemp("managed")
    with stack_cluster(folder / "home", Summary.of(pytestconfig)) as world:
        await put_secrets(world.running, secret_store(Settings(secrets=SecretSettings(directory=folder / "secrets"))))
        began = utc_now()
        settings = {"MODELPLANE_STACK__CHART_MIRROR": world.charts.url}
        with a_worker(world.running.temporal_address, folder / "secrets", folder / "worker.log", **settings) as worker:
            async with connected(world.running) as client:
                plane = ControlPlane(client, world.running, worker, kube)
                yield Managed(plane, world)
                await replay_all(client, began, folder)


async def test_stk_16_24_35_42_a_managed_cluster_gets_its_stack_is_ready_and_is_deleted_without_a_trace(managed: Managed) -> None:
    await managed.apply()
    seen = await managed.plane.ready("InferenceCluster", CLUSTER)
    assert (reason(seen, "ClusterReady"), reason(seen, "BackendReady")) == ("ClusterRunning", "BackendHealthy")
    assert seen["status"]["gateway"] == {"address": "10.245.9.9"}
    reasons = [event["reason"] for event in seen["status"]["events"]]
    assert reasons.count("ComposingBackend") == 1
    assert reasons.count("StackComplete") == 1
    assert set(managed.world.releases().values()) == {"deployed"}

    await managed.plane.delete("InferenceCluster", CLUSTER)
    await managed.plane.gone("InferenceCluster", CLUSTER)
    assert managed.world.releases() == {}
    assert managed.world.names(SERVICES) == []
    assert managed.world.get(f"/api/v1/namespaces/{labels.SYSTEM_NAMESPACE}") is None
