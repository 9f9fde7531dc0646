"""An InferenceCluster without a serving stack gets one, keeps it, and takes it away again: real API server, real helm, real Temporal.

The charts are small ones of the tests, and a stand-in acts as Envoy's controllers; the worker is the process that users run.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from kubernetes.client import ApiClient

from activities.secrets.selection import secret_store
from api_types import labels
from api_types.clock import utc_now
from api_types.messages.entities import Force, RetryNow
from api_types.settings import SecretSettings, Settings
from testbed.running import ClusterRunning
from tests.environment.stack_charts import leader_worker_set
from tests.environment.stack_testbed import CLUSTER, StackCluster, stack_cluster
from tests.environment.summary import Summary
from tests.workflows.conftest import documents, put_secrets
from tests.workflows.environment.harness import ControlPlane, Json, a_worker, connected, eventually, message, reason
from tests.workflows.environment.replaying import replay_all

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(400)]

SERVICES = "/api/v1/namespaces/envoy-gateway-system/services"
CLASSES = "/apis/gateway.networking.k8s.io/v1/gatewayclasses"
LWS_CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/leaderworkersets.leaderworkerset.x-k8s.io"
NEWER = "v0.8.1"


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

    async def until(self, holds: Callable[[Json], bool]) -> Json:
        return await self.plane.until("InferenceCluster", CLUSTER, holds)

    async def ready(self) -> Json:
        return await self.plane.ready("InferenceCluster", CLUSTER)

    async def until_releases(self, holds: Callable[..., bool]) -> None:
        """Wait until something holds of the releases on the cluster."""
        await eventually(lambda: asyncio.to_thread(self.world.releases), holds, what="the number of releases")

    async def retry(self, request: str) -> None:
        """Have what waits tried at once, and what is installed looked at."""
        await self.plane.handle("InferenceCluster", CLUSTER).signal("retry_now", RetryNow(request_id=request, by="test").wire())

    async def delete(self) -> None:
        await self.plane.delete("InferenceCluster", CLUSTER)

    async def gone(self) -> None:
        """Wait until it is gone, and see that it left nothing that was not there before."""
        await self.plane.gone("InferenceCluster", CLUSTER)
        assert self.world.releases() == {}
        assert self.world.names(SERVICES) == []
        assert self.world.get(f"/api/v1/namespaces/{labels.SYSTEM_NAMESPACE}") is None


def events(seen: Json, reason: str) -> list[str]:
    return [event["message"] for event in seen["status"].get("events", ()) if event["reason"] == reason]


@pytest.fixture(scope="module")
async def managed(
    tmp_path_factory: pytest.TempPathFactory, kube: Callable[[ClusterRunning], ApiClient], pytestconfig: pytest.Config
) -> AsyncIterator[Managed]:
    folder = tmp_path_factory.mktemp("managed")
    with stack_cluster(folder / "home", Summary.of(pytestconfig)) as world:
        world.charts.add(leader_worker_set(NEWER, field="addedLater"))
        await put_secrets(world.running, secret_store(Settings(secrets=SecretSettings(directory=folder / "secrets"))))
        began = utc_now()
        settings = {"MODELPLANE_STACK__CHART_MIRROR": world.charts.url}
        with a_worker(world.running.temporal_address, folder / "secrets", folder / "worker.log", **settings) as worker:
            async with connected(world.running) as client:
                yield Managed(ControlPlane(client, world.running, worker, kube), world)
                await replay_all(client, began, folder)


@pytest.fixture(autouse=True)
async def clear(managed: Managed) -> AsyncIterator[None]:
    """Take away what a stack leaves on a cluster that stays, such as definitions."""
    yield

    def is_clear() -> bool:
        managed.world.clear()
        return managed.world.is_clear()

    await eventually(lambda: asyncio.to_thread(is_clear), bool, what="a cluster as it was before")


async def test_stk_16_24_35_42_a_managed_cluster_gets_its_stack_is_ready_and_is_deleted_without_a_trace(managed: Managed) -> None:
    await managed.apply()
    seen = await managed.ready()
    assert (reason(seen, "ClusterReady"), reason(seen, "BackendReady")) == ("ClusterRunning", "BackendHealthy")
    assert seen["status"]["gateway"] == {"address": "10.245.9.9"}
    assert len(events(seen, "ComposingBackend")) == 1
    assert len(events(seen, "StackComplete")) == 1
    assert set(managed.world.releases().values()) == {"deployed"}
    await managed.delete()
    await managed.gone()


async def test_stk_31_others_in_the_way_are_named_and_lost_workers_change_nothing_in_the_outcome(managed: Managed) -> None:
    """What others have is in the way until it is gone; then the worker is killed again and again, while it installs and removes."""
    crd = next(each for each in managed.world.gateway_definitions() if each["metadata"]["name"].startswith("gatewayclasses."))
    managed.world.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    await eventually(lambda: asyncio.to_thread(managed.world.get, CLASSES), lambda found: found is not None, what="GatewayClasses")
    managed.world.create(CLASSES, {"kind": "GatewayClass", "metadata": {"name": "envoy"}, "spec": {"controllerName": "example.com/other"}})
    await managed.apply()
    seen = await managed.until(lambda seen: reason(seen, "BackendReady") == "ReleaseConflict")
    assert "GatewayClass envoy belongs to others (controller example.com/other)" in message(seen, "BackendReady")
    assert "modelplane.ai/stack: external" in message(seen, "BackendReady")
    assert managed.world.releases() == {}

    managed.world.delete(f"{CLASSES}/envoy")
    await managed.retry("resolved")
    for installed in (2, 6):
        await managed.until_releases(lambda found, least=installed: len(found) >= least)
        managed.plane.worker.kill()
        managed.plane.worker.start()
    await managed.ready()
    assert set(managed.world.releases().values()) == {"deployed"}
    await managed.delete()
    for left in (4,):
        await managed.until_releases(lambda found, most=left: len(found) <= most)
        managed.plane.worker.kill()
        managed.plane.worker.start()
    await managed.gone()


async def test_stk_34_36_40_a_stack_is_repaired_and_upgraded_and_what_does_not_go_is_named_and_can_be_given_up(managed: Managed) -> None:
    await managed.apply()
    await managed.ready()
    revisions = managed.world.revisions()
    managed.world.delete("/api/v1/namespaces/monitoring/secrets/sh.helm.release.v1.mp-kube-prometheus-stack.v1")
    await managed.retry("look")
    seen = await managed.until(lambda seen: bool(events(seen, "StackRepaired")))
    assert events(seen, "StackRepaired") == ["something is missing and is applied again: prometheus"]
    await eventually(lambda: asyncio.to_thread(managed.world.revisions), lambda found: found == revisions, what="the same releases")

    managed.plane.worker.stop()
    managed.plane.worker.settings["MODELPLANE_STACK__VERSIONS"] = f'{{"leaderWorkerSet": "{NEWER}"}}'
    managed.plane.worker.start()
    seen = await managed.until(lambda seen: len(events(seen, "StackComplete")) == 2)
    assert reason(seen, "BackendReady") == "BackendHealthy"
    assert managed.world.revisions() == {**revisions, "mp-lws": 2}
    definition = managed.world.get(LWS_CRD)
    assert definition
    assert "addedLater" in definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert seen["status"]["gateway"] == {"address": "10.245.9.9"}
    assert events(seen, "GatewayAddressChanged") == []

    (service,) = managed.world.names(SERVICES)
    managed.world.envoy.behaviour.releases_balancers = False
    await managed.delete()
    seen = await managed.until(lambda seen: f"Service envoy-gateway-system/{service}" in message(seen, "Deleting"))
    assert "stack U2, step 2 of" in message(seen, "Deleting")
    assert "mp-gateway-helm" in managed.world.releases()
    order = Force(request_id="given up", by="test", reason="the cloud is gone", scope="step")
    await managed.plane.handle("InferenceCluster", CLUSTER).signal("force", order.wire())
    seen = await managed.until(lambda seen: bool(seen["status"].get("leftBehind")))
    assert [(item["kind"], item["name"]) for item in seen["status"]["leftBehind"]] == [("Service", service)]
    managed.world.envoy.behaviour.releases_balancers = True
    await managed.gone()
