"""A created cluster whose pools get no machines, or lose them, and models on it."""

from typing import Any

from activities.clouds.lifecycle.handler import HealthIssue
from api_types.errors import CapacityUnavailable
from scheduler.fleet.manifests import cluster_view
from tests.activities.clouds.builders import a_pool
from tests.simulation.lives.virtual_plane import on_a_virtual_loop
from tests.workflows.cloud_cluster.at_cloud import (
    NAME,
    AtCloud,
    a_class,
    a_cluster,
    control_plane,
)
from tests.workflows.environment.harness import ControlPlane, Json, condition, message

CONDITION = "CloudObjectsReady"
NO_MACHINES = "no machines in europe-west4-a"
NEXT = (
    "wait for machines, or use other zones, another machine type or another capacity "
    "reservation"
)
STOCKOUT = HealthIssue(
    CapacityUnavailable,
    "GCE_STOCKOUT",
    "status RUNNING_WITH_ERROR: GCE_STOCKOUT: no machines",
    lacks_nodes=True,
)


def with_pools(*pools: Json) -> Json:
    cluster = a_cluster()
    return {**cluster, "spec": {**cluster["spec"], "nodePools": list(pools)}}


async def capacity(plane: ControlPlane) -> list[tuple[str, int, str]]:
    """Return the pools as the scheduler sees them: name, nodes and shortage."""
    report = await plane.handle("InferenceCluster", NAME).query("account")
    view = cluster_view(report["manifest"])
    return [(pool.name, pool.nodes, pool.shortage) for pool in view.pools]


def events(seen: Json) -> list[str]:
    return [event["reason"] for event in seen["status"]["events"]]


def row(seen: Json, pool: str) -> dict[str, Any]:
    (found,) = [
        each for each in seen["status"]["cloudObjects"] if each.get("pool") == pool
    ]
    return {name: found.get(name) for name in ("ready", "reason", "nextStep")}


@on_a_virtual_loop
async def test_a_pool_without_machines_holds_up_neither_the_cluster_nor_other_pools() -> (
    None
):
    clusters = AtCloud(capacity_retry=60)
    async with control_plane(clusters) as (plane, at_cloud):
        at_cloud.cloud.refuse["create", "pool/big"] = [
            CapacityUnavailable(NO_MACHINES) for _ in range(1000)
        ]
        await plane.apply(a_class())
        await plane.apply(with_pools(a_pool("big"), a_pool("gpu")))
        await plane.ready("InferenceCluster", NAME)
        seen = await plane.until(
            "InferenceCluster", NAME, lambda seen: condition(seen, CONDITION) == "False"
        )
        assert condition(seen, "ClusterReady") == "True"
        assert message(seen, CONDITION).startswith(
            f"pool big (NodePool big): CapacityUnavailable: {NO_MACHINES}, since "
        )
        assert f", next step: {NEXT}, next attempt at " in message(seen, CONDITION)
        lacking = {"ready": False, "reason": "CapacityUnavailable", "nextStep": NEXT}
        assert row(seen, "big") == lacking
        (name, nodes, shortage), whole = await capacity(plane)
        assert (name, nodes, shortage, whole) == (
            "big",
            0,
            (
                "the cloud provides 0 of 1 nodes: NodePool big: CapacityUnavailable: "
                f"{NO_MACHINES}; next step: {NEXT}"
            ),
            ("gpu", 1, ""),
        )
        at_cloud.cloud.refuse.clear()
        seen = await plane.until(
            "InferenceCluster", NAME, lambda seen: condition(seen, CONDITION) == ""
        )
        assert await capacity(plane) == [("big", 1, ""), ("gpu", 1, "")]
        assert events(seen).count("CapacityUnavailable") == 1
        assert "CloudObjectRecovered" in events(seen)


@on_a_virtual_loop
async def test_machines_that_are_lost_after_ready_are_a_condition_and_no_capacity() -> (
    None
):
    clusters = AtCloud(drift_interval=1)
    async with control_plane(clusters) as (plane, at_cloud):
        await plane.apply(a_class())
        await plane.apply(a_cluster())
        await plane.ready("InferenceCluster", NAME)
        assert await capacity(plane) == [("gpu", 1, "")]
        # The simulated cluster reports no nodes, as a cluster that lost them.
        at_cloud.cloud.health["pool/gpu"] = STOCKOUT
        seen = await plane.until(
            "InferenceCluster", NAME, lambda seen: condition(seen, CONDITION) == "False"
        )
        assert condition(seen, "ClusterReady") == "True"
        assert f"CapacityUnavailable: {STOCKOUT.text}, since " in message(
            seen, CONDITION
        )
        assert "CapacityUnavailable" in events(seen)
        ((_, nodes, shortage),) = await capacity(plane)
        assert (nodes, STOCKOUT.text in shortage) == (0, True)
        del at_cloud.cloud.health["pool/gpu"]
        await plane.until(
            "InferenceCluster", NAME, lambda seen: condition(seen, CONDITION) == ""
        )
        assert await capacity(plane) == [("gpu", 1, "")]
