"""A class and the clusters that use it, including when one of the two is terminated and
applied again.
"""

from api_types import names
from tests.simulation.lives.virtual_plane import on_a_virtual_loop, virtual_plane
from tests.workflows.environment.harness import (
    ControlPlane,
    condition,
    eventually,
    message,
    reason,
)
from tests.workflows.environment.simulated_clusters import (
    SimulatedClusters,
    a_class,
    a_cluster,
)

CLASS, CLUSTER = (
    names.workflow_id("InferenceClass", "", "h100-8x"),
    names.workflow_id("InferenceCluster", "", "eu"),
)


async def users_of_the_class(plane: ControlPlane) -> list[str]:
    seen = await plane.describe("InferenceClass", "h100-8x")
    users: list[str] = seen.get("status", {}).get("clusters", [])
    return users


@on_a_virtual_loop
async def test_a_recreated_class_is_protected_and_its_changes_arrive() -> None:
    async with virtual_plane() as plane:
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        await plane.ready("InferenceCluster", "eu")
        await plane.client.get_workflow_handle(CLASS).terminate("lost on purpose")
        await plane.apply(a_class())
        await eventually(
            lambda: users_of_the_class(plane),
            lambda users: users == ["eu"],
            what="the registration of the cluster",
        )
        changed = a_class()
        changed["spec"]["devices"][0]["count"] = 4
        await plane.apply(changed)
        await plane.until(
            "InferenceCluster",
            "eu",
            lambda seen: (
                [
                    pool["devices"][0]["count"]
                    for pool in seen["status"].get("gpuPools", ())
                ]
                == [4]
            ),
        )
        await plane.delete("InferenceClass", "h100-8x")
        held = await plane.until(
            "InferenceClass",
            "h100-8x",
            lambda seen: "used by InferenceCluster eu" in message(seen, "Deleting"),
        )
        assert held["status"]["clusters"] == ["eu"]


@on_a_virtual_loop
async def test_a_terminated_cluster_does_not_count_as_a_user_once_its_class_changes() -> (
    None
):
    async with virtual_plane() as plane:
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        await eventually(
            lambda: users_of_the_class(plane),
            lambda users: users == ["eu"],
            what="the registration of the cluster",
        )
        await plane.client.get_workflow_handle(CLUSTER).terminate("lost on purpose")
        changed = a_class()
        changed["spec"]["devices"][0]["count"] = 4
        await plane.apply(changed)
        await eventually(
            lambda: users_of_the_class(plane),
            lambda users: users == [],
            what="the end of the registration",
        )
        await plane.delete("InferenceClass", "h100-8x")
        await plane.gone("InferenceClass", "h100-8x")


@on_a_virtual_loop
async def test_a_terminated_cluster_does_not_hold_up_the_deletion_of_its_class() -> (
    None
):
    async with virtual_plane() as plane:
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        await eventually(
            lambda: users_of_the_class(plane),
            lambda users: users == ["eu"],
            what="the registration of the cluster",
        )
        await plane.delete("InferenceClass", "h100-8x")
        await plane.until(
            "InferenceClass",
            "h100-8x",
            lambda seen: "used by InferenceCluster eu" in message(seen, "Deleting"),
        )
        await plane.client.get_workflow_handle(CLUSTER).terminate("lost on purpose")
        # The class looks for its users in each resync, about once an hour.
        await plane.gone("InferenceClass", "h100-8x", within=7200)


@on_a_virtual_loop
async def test_a_cluster_without_dra_is_unsupported_until_it_serves_dra() -> None:
    clusters = SimulatedClusters(settings={"dra_version": ""})
    async with virtual_plane(clusters) as plane:
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        seen = await plane.until(
            "InferenceCluster",
            "eu",
            lambda tree: reason(tree, "ClusterReady") == "UnsupportedCluster",
        )
        assert "serves no version of resource.k8s.io" in message(seen, "ClusterReady")
        assert (reason(seen, "BackendReady"), condition(seen, "Ready")) == (
            "WaitingForCluster",
            "False",
        )
        clusters.settings = {"dra_version": "v1"}
        # The cluster connects again.
        await plane.apply(a_cluster("eu", nodes=3))
        await plane.ready("InferenceCluster", "eu")
