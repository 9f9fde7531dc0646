"""An object that waits for another object continues when that object appears, long
before its next attempt.
"""

from datetime import timedelta

import pytest

from tests.simulation.lives.virtual_plane import (
    VirtualPlane,
    on_a_virtual_loop,
    virtual_plane,
)
from tests.workflows.environment.harness import (
    Json,
    a_cache,
    a_deployment,
    eventually,
    message,
    reason,
)
from tests.workflows.environment.simulated_clusters import a_class, a_cluster
from workflows.entity import periods

NAMESPACE = "ml"
# Seconds. Far less than the time until the next attempt.
AT_ONCE = 60


@pytest.fixture(autouse=True)
def rare_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the longest backoff from the first attempt on, and switch periodic checks off."""
    monkeypatch.setattr(periods, "AWAIT_FIRST", periods.AWAIT_LONGEST)
    monkeypatch.setattr(periods, "RESYNC", timedelta(days=1))


async def waits(plane: VirtualPlane, kind: str, name: str, namespace: str = "") -> None:
    async def scheduled() -> int:
        return (await plane.activities_scheduled(kind, name, namespace)).count(
            "await_running"
        )

    await eventually(
        scheduled, lambda count: count == 1, what=f"the wait of {kind} {name}"
    )


async def placed(plane: VirtualPlane, name: str) -> Json:
    await plane.apply(a_deployment(name, NAMESPACE))
    return await plane.until(
        "ModelDeployment",
        name,
        lambda now: len(now.get("status", {}).get("placements", ())) == 1,
        NAMESPACE,
    )


@on_a_virtual_loop
async def test_classes_caches_and_clusters_end_the_waits_for_them() -> None:
    async with virtual_plane() as plane:
        # A cluster waits for its class.
        await plane.apply(a_cluster("eu"))
        await plane.until(
            "InferenceCluster",
            "eu",
            lambda seen: reason(seen, "ClusterReady") == "WaitingForClasses",
        )
        await waits(plane, "InferenceCluster", "eu")
        await plane.apply(a_class())
        await plane.ready("InferenceCluster", "eu", within=AT_ONCE)
        # The cluster is registered, too.
        await plane.until(
            "InferenceClass",
            "h100-8x",
            lambda seen: seen.get("status", {}).get("clusters") == ["eu"],
            within=AT_ONCE,
        )

        # A deployment waits for its cache.
        await plane.apply(
            a_deployment("chat", NAMESPACE, modelCacheRef={"name": "weights"})
        )
        await waits(plane, "ModelDeployment", "chat", NAMESPACE)
        await plane.apply(a_cache("weights", NAMESPACE, "acme/weights"))
        await plane.ready("ModelDeployment", "chat", NAMESPACE, within=AT_ONCE)

        # A cache that was terminated and applied again knows its replicas.
        await plane.handle("ModelCache", "weights", NAMESPACE).terminate(
            "lost on purpose"
        )
        await plane.apply(a_cache("weights", NAMESPACE, "acme/weights"))
        await plane.ready("ModelCache", "weights", NAMESPACE, within=AT_ONCE)
        await plane.delete("ModelCache", "weights", NAMESPACE)
        await plane.until(
            "ModelCache",
            "weights",
            lambda seen: "used by ModelReplica chat-" in message(seen, "Deleting"),
            NAMESPACE,
            within=AT_ONCE,
        )

        # A replica waits for its cluster. The scheduler remembers a cluster after its
        # end too.
        await plane.handle("InferenceCluster", "eu").terminate("lost on purpose")
        seen = await placed(plane, "late")
        await waits(
            plane, "ModelReplica", seen["status"]["placements"][0]["replica"], NAMESPACE
        )
        await plane.apply(a_cluster("eu"))
        await plane.ready("ModelDeployment", "late", NAMESPACE, within=AT_ONCE)

        # The class is kept while the cluster uses it.
        await plane.delete("InferenceClass", "h100-8x")
        held = await plane.until(
            "InferenceClass",
            "h100-8x",
            lambda seen: reason(seen, "Deleting") == "InUse",
        )
        assert "eu" in message(held, "Deleting")
