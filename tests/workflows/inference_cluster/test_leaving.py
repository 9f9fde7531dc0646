"""A cluster with replicas on it that is deleted, or lost and applied again, on a real Temporal server."""

from typing import Any

import pytest

from api_types import names
from tests.workflows.environment.harness import ControlPlane, Json, a_deployment, eventually, message
from tests.workflows.environment.simulated_clusters import a_class, a_cluster, activities_scheduled, simulated_plane

pytestmark = pytest.mark.testbed("shared")

NAMESPACE, OTHER = "ml-team", "another-team"
# From the force to the end of all that stood on the cluster, and to its replacement.
SECONDS_MAX = 60


async def a_fleet(plane: ControlPlane, *clusters: str) -> None:
    await plane.apply(a_class())
    for cluster in clusters:
        await plane.apply(a_cluster(cluster))
        await plane.ready("InferenceCluster", cluster)


async def placements(plane: ControlPlane, name: str) -> list[Any]:
    placed: list[Any] = (await plane.describe("ModelDeployment", name, NAMESPACE)).get("status", {}).get("placements", [])
    return placed


async def a_replica(plane: ControlPlane, name: str) -> tuple[str, str]:
    """Apply a deployment with one replica; gives the replica and its cluster."""
    await plane.apply(a_deployment(name, NAMESPACE))
    await plane.ready("ModelDeployment", name, NAMESPACE)
    (placed,) = await placements(plane, name)
    return placed["replica"], placed["cluster"]


async def nodes_known(plane: ControlPlane) -> int:
    """How many nodes the scheduler has on the cluster: none of one that was applied again, until that has connected."""
    pools = await plane.client.get_workflow_handle(names.FLEET_SCHEDULER_ID).query("pools", "eu")
    return sum(pool["declared"] for pool in pools)


async def knows(plane: ControlPlane, nodes: int) -> None:
    """Wait until the scheduler has so many nodes on the cluster."""
    await eventually(lambda: nodes_known(plane), lambda known: known == nodes, what=f"a report of {nodes} nodes")


def waits_for(replica: str) -> Any:
    return lambda seen: f"waits until ModelReplica {NAMESPACE}/{replica} is gone" in message(seen, "Deleting")


async def test_stk_59_60_61_a_cluster_of_two_tenants_and_a_lost_class_stays_until_both_are_gone_and_takes_no_more() -> None:
    async with simulated_plane() as plane:
        await a_fleet(plane, "eu")
        replica, _ = await a_replica(plane, "qwen")
        await plane.apply(a_deployment("qwen", OTHER))
        await plane.ready("ModelDeployment", "qwen", OTHER)
        (other,) = (await plane.describe("ModelDeployment", "qwen", OTHER))["status"]["placements"]
        # Its class does not resolve any more.
        await plane.client.get_workflow_handle(names.workflow_id("InferenceClass", "", "h100-8x")).terminate("lost on purpose")
        await plane.delete("InferenceCluster", "eu")
        both = f"waits until ModelReplica {OTHER}/{other['replica']}, {NAMESPACE}/{replica} are gone"
        await plane.until("InferenceCluster", "eu", lambda seen: both in message(seen, "Deleting"))

        await plane.apply(a_deployment("late", NAMESPACE))
        refused = "0/1 clusters are available: 1 are being deleted"
        await plane.until("ModelDeployment", "late", lambda seen: refused in message(seen, "ReplicasScheduled"), NAMESPACE)
        await plane.delete("ModelDeployment", "late", NAMESPACE)

        await plane.delete("ModelDeployment", "qwen", NAMESPACE)
        await plane.until(
            "InferenceCluster", "eu", lambda seen: f"ModelReplica {OTHER}/{other['replica']} is gone" in message(seen, "Deleting")
        )
        await plane.delete("ModelDeployment", "qwen", OTHER)
        # It went on by itself.
        await plane.gone("InferenceCluster", "eu")


async def test_sch_17_143_a_cluster_stays_until_its_last_replica_is_gone() -> None:
    async with simulated_plane() as plane:
        await a_fleet(plane, "eu")
        replica, _ = await a_replica(plane, "qwen")
        await plane.delete("InferenceCluster", "eu")
        seen = await plane.until("InferenceCluster", "eu", waits_for(replica))
        assert "--evict` moves replicas to other clusters" in message(seen, "Deleting")
        await plane.delete("ModelDeployment", "qwen", NAMESPACE)
        await plane.gone("ModelDeployment", "qwen", NAMESPACE)
        await plane.gone("InferenceCluster", "eu")


async def test_a_cluster_that_is_deleted_with_evict_sends_its_replicas_to_another_one() -> None:
    async with simulated_plane() as plane:
        await a_fleet(plane, "eu", "us")
        replica, cluster = await a_replica(plane, "qwen")
        await plane.delete("InferenceCluster", cluster, evict=True)
        await plane.gone("InferenceCluster", cluster)
        await plane.gone("ModelReplica", replica, NAMESPACE)
        await plane.ready("ModelDeployment", "qwen", NAMESPACE)
        (placed,) = await placements(plane, "qwen")
        assert placed["cluster"] == {"eu": "us", "us": "eu"}[cluster]


async def test_wkl_114_the_replicas_of_a_cluster_whose_deletion_is_forced_go_with_it_and_are_placed_elsewhere() -> None:
    async with simulated_plane() as plane:
        await a_fleet(plane, "eu", "us")
        replica, cluster = await a_replica(plane, "qwen")
        await plane.delete("InferenceCluster", cluster)
        await plane.until("InferenceCluster", cluster, waits_for(replica))
        await plane.force("InferenceCluster", cluster)
        await plane.gone("InferenceCluster", cluster, within=SECONDS_MAX)
        await plane.gone("ModelReplica", replica, NAMESPACE, within=SECONDS_MAX)
        left = await plane.handle("ModelReplica", replica, NAMESPACE).query("describe")
        assert "the InferenceCluster was deleted" in {
            event["message"] for event in left["status"]["events"] if event["reason"] == "Abandoned"
        }
        assert [item["kind"] for item in left["status"]["leftBehind"]] == ["Deployment"]
        assert "teardown_replica_step" not in await activities_scheduled(plane, "ModelReplica", replica, NAMESPACE)
        await plane.ready("ModelDeployment", "qwen", NAMESPACE, within=SECONDS_MAX)
        (placed,) = await placements(plane, "qwen")
        assert placed["cluster"] == {"eu": "us", "us": "eu"}[cluster]


async def test_a_cluster_that_was_terminated_and_applied_again_is_followed_and_can_be_deleted() -> None:
    async with simulated_plane() as plane:
        await a_fleet(plane, "eu")
        replica, _ = await a_replica(plane, "qwen")
        # Reports of the lost cluster have higher numbers than those of the next one.
        for nodes in range(11, 16):
            await plane.apply(a_cluster("eu", nodes=nodes))
            await knows(plane, nodes)
        await plane.client.get_workflow_handle(names.workflow_id("InferenceCluster", "", "eu")).terminate("lost on purpose")
        again: Json = a_cluster("eu", nodes=2)
        again["spec"]["cluster"]["existing"]["secretRef"]["name"] = "another-kubeconfig"
        await plane.apply(again)
        await knows(plane, 2)
        await plane.delete("InferenceCluster", "eu")
        await plane.until("InferenceCluster", "eu", waits_for(replica))
        await plane.delete("ModelDeployment", "qwen", NAMESPACE)
        await plane.gone("ModelDeployment", "qwen", NAMESPACE)
        await plane.gone("InferenceCluster", "eu")
        # The replica followed it, too: its objects were deleted with the credentials of the new one.
        history = await plane.handle("ModelReplica", replica, NAMESPACE).fetch_history()
        used = [event.activity_task_scheduled_event_attributes for event in history.events]
        deletions = [str(each.input) for each in used if each.activity_type.name == "teardown_replica_step"]
        assert deletions
        assert all("another-kubeconfig" in each for each in deletions)


async def test_a_replica_that_was_terminated_with_its_cluster_is_deleted_through_the_connection_of_that() -> None:
    async with simulated_plane() as plane:
        await a_fleet(plane, "eu")
        replica, _ = await a_replica(plane, "qwen")
        await plane.handle("InferenceCluster", "eu").terminate("lost on purpose")
        await plane.handle("ModelReplica", replica, NAMESPACE).terminate("lost on purpose")
        await plane.delete("ModelDeployment", "qwen", NAMESPACE)
        await plane.gone("ModelDeployment", "qwen", NAMESPACE, within=SECONDS_MAX)
        assert "teardown_replica_step" in await activities_scheduled(plane, "ModelReplica", replica, NAMESPACE)
