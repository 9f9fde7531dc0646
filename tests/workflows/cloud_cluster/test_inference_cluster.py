"""An InferenceCluster with its CloudCluster, at a scripted cloud with a simulated cluster there."""

import pytest
from temporalio.service import RPCError

from activities.clusters.emptying import NOT_OURS
from api_types import labels, names
from api_types.messages.clouds import Leftover
from api_types.messages.cluster_work import RemainingObject
from tests.environment.scripted_cloud import OTHER
from tests.simulation.lives.virtual_plane import on_a_virtual_loop
from tests.workflows.cloud_cluster.at_cloud import (
    NAME,
    AtCloud,
    a_class,
    a_cluster,
    control_plane,
    held_by,
)
from tests.workflows.environment.harness import condition, message, reason

HOLDING = [
    (
        RemainingObject(id="v1/Service/shop/website", why=NOT_OURS),
        "LoadBalancersRemaining",
    ),
    (
        RemainingObject(id="v1/PersistentVolumeClaim/shop/database", why=NOT_OURS),
        "VolumesRemaining",
    ),
]


@on_a_virtual_loop
async def test_a_cluster_is_created_connected_and_deleted_completely() -> None:
    clusters = AtCloud()
    async with control_plane(clusters) as (plane, at_cloud):
        at_cloud.cloud.hold.add("cluster")
        await plane.apply(a_class())
        await plane.apply(a_cluster())
        seen = await plane.until(
            "InferenceCluster",
            NAME,
            lambda seen: "cluster (Cluster" in message(seen, "ClusterReady"),
        )
        assert (condition(seen, "ClusterReady"), reason(seen, "ClusterReady")) == (
            "False",
            "Provisioning",
        )
        assert seen["status"]["cache"]["storageClassName"] == "modelplane-rwx"
        assert seen["status"]["gpuPools"][0]["name"] == "gpu"
        assert "providerConfigRef" not in seen["status"], "nothing can be reached yet"
        at_cloud.cloud.hold.clear()
        seen = await plane.ready("InferenceCluster", NAME)
        assert reason(seen, "ClusterReady") == "ClusterRunning"
        assert seen["status"]["providerConfigRef"]["name"] == names.connection_handle(
            NAME
        )
        await plane.delete("InferenceCluster", NAME)
        await plane.gone("InferenceCluster", NAME)
        assert (at_cloud.cloud.things, clusters.emptied, at_cloud.cloud.emptied) == (
            {},
            [NAME],
            {True},
        )


@on_a_virtual_loop
async def test_a_creation_without_problems_has_no_warning() -> None:
    async with control_plane(AtCloud()) as (plane, _):
        await plane.apply(a_class())
        await plane.apply(a_cluster())
        seen = await plane.ready("InferenceCluster", NAME)
        events = seen["status"]["events"]
        assert [each for each in events if each["type"] != "Normal"] == []
        titles = [
            each["message"] for each in events if each["reason"] == "CloudObjectReady"
        ]
        assert "cluster (Cluster" in " ".join(titles)


@on_a_virtual_loop
async def test_an_annotation_lets_a_cluster_without_api_server_be_deleted() -> None:
    clusters = AtCloud()
    async with control_plane(clusters) as (plane, at_cloud):
        await plane.apply(a_class())
        await plane.apply(a_cluster(**{labels.SKIP_IN_CLUSTER_TEARDOWN: "true"}))
        await plane.ready("InferenceCluster", NAME)
        await plane.delete("InferenceCluster", NAME)
        await plane.gone("InferenceCluster", NAME)
        assert (at_cloud.cloud.things, clusters.emptied, at_cloud.cloud.emptied) == (
            {},
            [],
            {False},
        )


@on_a_virtual_loop
async def test_a_forced_deletion_warns_about_objects_of_users() -> None:
    clusters = AtCloud()
    async with control_plane(clusters) as (plane, at_cloud):
        await plane.apply(a_class())
        await plane.apply(a_cluster())
        await plane.ready("InferenceCluster", NAME)
        clusters.holding = [HOLDING[1][0]]
        await plane.delete("InferenceCluster", NAME)
        await plane.until("InferenceCluster", NAME, held_by(HOLDING[1][1]))
        await plane.force("InferenceCluster", NAME)
        await plane.gone("InferenceCluster", NAME)
        assert (at_cloud.cloud.things, at_cloud.cloud.emptied) == ({}, {False})


@on_a_virtual_loop
async def test_objects_that_a_deleted_cluster_leaves_are_listed_in_its_status() -> None:
    clusters = AtCloud()
    async with control_plane(clusters) as (plane, at_cloud):
        await plane.apply(a_class())
        await plane.apply(a_cluster())
        await plane.ready("InferenceCluster", NAME)
        at_cloud.cloud.things["net/vpc"].owner = OTHER
        at_cloud.cloud.leftovers = [
            Leftover(kind="Instance", id="i-0123", evidence="in our network")
        ]
        await plane.delete("InferenceCluster", NAME)
        await plane.gone("InferenceCluster", NAME)
        closed = await plane.handle("InferenceCluster", NAME).query("describe")
        left = closed["status"]["leftBehind"]
        assert {each["reason"] for each in left} == {
            "it does not belong to this cluster"
        }
        assert ["net/vpc" in left[0]["name"], "Instance i-0123" in left[1]["name"]] == [
            True,
            True,
        ]


@on_a_virtual_loop
async def test_an_abandoned_cluster_is_listed_in_its_status_with_links() -> None:
    clusters = AtCloud()
    async with control_plane(clusters) as (plane, at_cloud):
        await plane.apply(a_class())
        await plane.apply(a_cluster(**{labels.ABANDON: "true"}))
        await plane.ready("InferenceCluster", NAME)
        await plane.delete("InferenceCluster", NAME)
        await plane.gone("InferenceCluster", NAME)
        closed = await plane.handle("InferenceCluster", NAME).query("describe")
        cluster = at_cloud.cloud.things["cluster"]
        names_of_left = [
            each["name"]
            for each in closed["status"]["leftBehind"]
            if each["reason"] == "the cluster was abandoned"
        ]
        assert any(
            cluster.id in each and f"https://cloud.example/{cluster.id}" in each
            for each in names_of_left
        )
        assert at_cloud.cloud.written("delete") == []


@on_a_virtual_loop
async def test_an_existing_cluster_has_no_cloud_objects_even_if_it_is_unreachable() -> (
    None
):
    clusters = AtCloud()
    clusters.missing.add("own")
    spec = {
        "cluster": {"source": "Existing", "existing": {"secretRef": {"name": "own"}}}
    }
    async with control_plane(clusters) as (plane, at_cloud):
        await plane.apply(
            {
                **a_cluster(),
                "metadata": {**a_cluster()["metadata"], "name": "own"},
                "spec": spec,
            }
        )
        seen = await plane.until(
            "InferenceCluster",
            "own",
            lambda seen: "Secret" in message(seen, "ClusterReady"),
        )
        await plane.delete("InferenceCluster", "own")
        await plane.gone("InferenceCluster", "own")
        assert (at_cloud.cloud.calls, clusters.emptied) == ([], [])
        with pytest.raises(RPCError, match="not found"):
            await plane.client.get_workflow_handle(
                names.cloud_cluster_id("own", seen["metadata"]["uid"])
            ).describe()


@on_a_virtual_loop
async def test_objects_of_users_block_the_deletion_of_a_cluster() -> None:
    clusters = AtCloud()
    async with control_plane(clusters) as (plane, at_cloud):
        await plane.apply(a_class())
        await plane.apply(a_cluster())
        await plane.ready("InferenceCluster", NAME)
        before = dict(at_cloud.cloud.things)
        clusters.holding = [HOLDING[0][0]]
        await plane.delete("InferenceCluster", NAME)
        for item, expected in HOLDING:
            clusters.holding = [item]
            seen = await plane.until("InferenceCluster", NAME, held_by(expected))
            assert item.name in message(seen, "Deleting")
            assert f"with `modelplane delete ic/{NAME} --force`" in message(
                seen, "Deleting"
            )
        assert (at_cloud.cloud.things, clusters.emptied) == (before, [])
        clusters.holding = []
        await plane.gone("InferenceCluster", NAME)
        assert (at_cloud.cloud.things, clusters.emptied) == ({}, [NAME])
