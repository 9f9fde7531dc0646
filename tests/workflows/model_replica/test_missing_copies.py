"""A replica whose Secret does not exist is applied soon after the Secret appears."""

from tests.simulation.lives.virtual_plane import on_a_virtual_loop, virtual_plane
from tests.workflows.environment.harness import a_deployment, reason
from tests.workflows.environment.simulated_clusters import (
    SimulatedClusters,
    a_class,
    a_cluster,
)

NAMESPACE = "ml-team"


@on_a_virtual_loop
async def test_a_replica_is_applied_within_a_minute_of_its_secret() -> None:
    clusters = SimulatedClusters(lacking={"qwen"})
    async with virtual_plane(clusters) as plane:
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        await plane.ready("InferenceCluster", "eu")
        await plane.apply(a_deployment("qwen", NAMESPACE))
        seen = await plane.until(
            "ModelDeployment",
            "qwen",
            lambda seen: bool(seen["status"].get("placements")),
            NAMESPACE,
        )
        replica = seen["status"]["placements"][0]["replica"]
        await plane.until(
            "ModelReplica",
            replica,
            lambda seen: reason(seen, "ModelAccepted") == "SecretMissing",
            NAMESPACE,
        )
        clusters.lacking.clear()
        await plane.ready("ModelReplica", replica, NAMESPACE, within=60)
        scheduled = await plane.activities_scheduled("ModelReplica", replica, NAMESPACE)
    assert scheduled[:3] == ["apply_replica", "await_copies", "apply_replica"]
