"""The steps of a deletion across workflows.

Each step waits until the step before it has really ended.
"""

from api_types.messages.clouds import CLUSTER_KEY
from api_types.messages.cluster_work import RemainingObject
from tests.simulation.lives.virtual_plane import on_a_virtual_loop
from tests.workflows.cloud_cluster.at_cloud import NAME, AtCloud, control_plane, held_by
from tests.workflows.cloud_cluster.test_cluster_gone import NAMESPACE, a_replica
from tests.workflows.environment.harness import message

# The deletion waits for objects of users instead of deleting them. This object is
# Modelplane's own and is already being deleted.
OURS = RemainingObject(
    id="v1/Service/envoy-gateway-system/envoy",
    why="finalizer service.kubernetes.io/load-balancer-cleanup",
)


@on_a_virtual_loop
async def test_replicas_load_balancers_control_plane_and_network_are_deleted_in_this_order() -> (
    None
):
    clusters = AtCloud()
    async with control_plane(clusters) as (plane, at_cloud):
        cloud, replica = at_cloud.cloud, await a_replica(plane)
        clusters.holding = [OURS]
        await plane.delete("InferenceCluster", NAME)
        seen = await plane.until("InferenceCluster", NAME, held_by("Occupied"))
        assert f"{NAMESPACE}/{replica}" in message(seen, "Deleting")
        await plane.delete("ModelDeployment", "qwen", NAMESPACE)
        seen = await plane.until(
            "InferenceCluster", NAME, held_by("LoadBalancersRemaining")
        )
        assert "--force" not in message(seen, "Deleting"), "nobody has to do anything"
        assert (cloud.written("delete"), cloud.written("audit"), clusters.emptied) == (
            [],
            [],
            [],
        )
        cloud.hold.add(CLUSTER_KEY)
        clusters.holding = []
        await at_cloud.until_cloud(
            lambda cloud: CLUSTER_KEY in cloud.written("delete"),
            "the order to delete it",
        )
        looks = cloud.looks[CLUSTER_KEY]
        await at_cloud.until_cloud(
            lambda cloud: cloud.looks[CLUSTER_KEY] > looks + 5, "looks at its end"
        )
        assert (cloud.written("delete"), clusters.emptied) == ([CLUSTER_KEY], [NAME])
        cloud.hold.clear()
        await plane.gone("InferenceCluster", NAME)
        assert (cloud.things, cloud.written("delete")[0]) == ({}, CLUSTER_KEY)
