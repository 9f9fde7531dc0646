"""What an object waits for ends the wait by arriving, however rarely it is looked for by then; on a real Temporal server."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tests.workflows.environment.harness import ControlPlane, Json, a_cache, a_deployment, eventually, message, reason
from tests.workflows.environment.simulated_clusters import a_class, a_cluster, activities_scheduled, simulated_plane
from workflows.entity import periods

pytestmark = pytest.mark.testbed("shared")

NAMESPACE = "ml"
# Far less than the time to the next attempt.
AT_ONCE = 60


@pytest.fixture(autouse=True)
def rare_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backoff is at its end from the first attempt on, and nothing is checked meanwhile."""
    monkeypatch.setattr(periods, "AWAIT_FIRST", periods.AWAIT_LONGEST)
    monkeypatch.setattr(periods, "RESYNC", timedelta(days=1))


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    """A control plane of each test's own."""
    async with simulated_plane() as plane:
        yield plane


async def waits(plane: ControlPlane, kind: str, name: str, namespace: str = "") -> None:
    async def scheduled() -> int:
        return (await activities_scheduled(plane, kind, name, namespace)).count("await_running")

    await eventually(scheduled, lambda count: count == 1, what=f"the wait of {kind} {name}")


async def placed(plane: ControlPlane, name: str) -> Json:
    await plane.apply(a_deployment(name, NAMESPACE))
    return await plane.until("ModelDeployment", name, lambda now: len(now.get("status", {}).get("placements", ())) == 1, NAMESPACE)


async def test_a_class_ends_the_wait_of_its_clusters(plane: ControlPlane) -> None:
    await plane.apply(a_cluster("eu"))
    await plane.until("InferenceCluster", "eu", lambda seen: reason(seen, "ClusterReady") == "WaitingForClasses")
    await waits(plane, "InferenceCluster", "eu")
    await plane.apply(a_class())
    await plane.ready("InferenceCluster", "eu", within=AT_ONCE)
    # It is registered, too.
    await plane.until("InferenceClass", "h100-8x", lambda seen: seen.get("status", {}).get("clusters") == ["eu"], within=AT_ONCE)


async def test_a_cache_ends_the_wait_of_its_deployments(plane: ControlPlane) -> None:
    await plane.apply(a_class())
    await plane.apply(a_cluster("eu"))
    await plane.ready("InferenceCluster", "eu")
    await plane.apply(a_deployment("chat", NAMESPACE, modelCacheRef={"name": "weights"}))
    await waits(plane, "ModelDeployment", "chat", NAMESPACE)
    await plane.apply(a_cache("weights", NAMESPACE, "acme/weights"))
    await plane.ready("ModelDeployment", "chat", NAMESPACE, within=AT_ONCE)


async def test_a_cache_that_was_terminated_and_applied_again_knows_its_replicas(plane: ControlPlane) -> None:
    await plane.apply(a_class())
    await plane.apply(a_cluster("eu"))
    await plane.ready("InferenceCluster", "eu")
    await plane.apply(a_cache("weights", NAMESPACE, "acme/weights"))
    await plane.apply(a_deployment("chat", NAMESPACE, modelCacheRef={"name": "weights"}))
    await plane.ready("ModelDeployment", "chat", NAMESPACE)
    await plane.handle("ModelCache", "weights", NAMESPACE).terminate("lost on purpose")
    await plane.apply(a_cache("weights", NAMESPACE, "acme/weights"))
    await plane.ready("ModelCache", "weights", NAMESPACE, within=AT_ONCE)
    await plane.delete("ModelCache", "weights", NAMESPACE)
    await plane.until(
        "ModelCache", "weights", lambda seen: "used by ModelReplica chat-" in message(seen, "Deleting"), NAMESPACE, within=AT_ONCE
    )


async def test_a_cluster_ends_the_wait_of_its_replicas(plane: ControlPlane) -> None:
    await plane.apply(a_class())
    await plane.apply(a_cluster("eu"))
    await plane.ready("InferenceCluster", "eu")
    # A placement there says that the scheduler has heard of it, and it knows it after its end too.
    await placed(plane, "first")
    await plane.handle("InferenceCluster", "eu").terminate("lost on purpose")
    seen = await placed(plane, "chat")
    await waits(plane, "ModelReplica", seen["status"]["placements"][0]["replica"], NAMESPACE)
    await plane.apply(a_cluster("eu"))
    await plane.ready("ModelDeployment", "chat", NAMESPACE, within=AT_ONCE)
