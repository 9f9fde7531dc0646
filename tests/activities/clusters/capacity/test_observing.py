"""The plain adapter on a real API server.

Cordoned, claimed and pending objects are observed within seconds.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from activities.cluster_objects.cluster_api import ObjectId, Selection
from activities.cluster_objects.kinds import NODE
from activities.clusters.activities import ClusterActivities
from api_types import labels
from api_types.messages.capacity import CapacityPool, CapacitySnapshot
from api_types.messages.cluster_work import WatchCluster
from tests.activities.environment import operator
from tests.activities.environment.asking import asked_by
from tests.activities.environment.cluster_under_test import (
    ClusterUnderTest,
    RecordingClient,
    eventually,
)
from tests.activities.render.builders import a_member, an_engine
from tests.environment.background import in_background

pytestmark = pytest.mark.testbed

ONE = [{"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1}]
TOO_MANY = [{"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 9}]


@asynccontextmanager
async def observing(
    cluster: ClusterUnderTest, adapter: str = "kube", **order: Any
) -> AsyncIterator[RecordingClient]:
    """Watch the cluster as its entity would with the annotation for an adapter."""
    client = RecordingClient()
    environment = asked_by(cluster.workflow_id, client)
    watch = WatchCluster(
        connection=cluster.connection,
        cluster_uid="cluster-uid",
        capacity_adapter=adapter,
        **order,
    )
    async with in_background(
        environment.run(ClusterActivities(cluster.pool).watch_cluster, watch)
    ):
        yield client


async def seen_by(
    client: RecordingClient,
    cluster: ClusterUnderTest,
    holds: Callable[[CapacitySnapshot], bool],
) -> CapacitySnapshot:
    """Return the newest snapshot that was sent, once a condition holds."""

    def look() -> CapacitySnapshot | None:
        sent = client.of(f"inferencecluster/{cluster.connection.cluster}")
        capacity = sent[-1].cluster.capacity if sent and sent[-1].cluster else None
        return capacity if capacity is not None and holds(capacity) else None

    # After 300 s a snapshot is sent even without changes.
    found: CapacitySnapshot = await eventually(look, 150)
    return found


def pool(snapshot: CapacitySnapshot, name: str) -> CapacityPool:
    return next(found for found in snapshot.pools if found.name == name)


async def test_kube_a_cordoned_node_and_claimed_devices_are_observed(
    cluster: ClusterUnderTest,
) -> None:
    async with observing(cluster) as client:
        whole = await seen_by(client, cluster, lambda seen: bool(seen.pools))
        pools = {found.name: found for found in whole.pools}
        assert (whole.source, set(pools)) == ("kube", {"h100", "l40s"})
        before = pools["h100"]
        assert before.nodes_schedulable == before.nodes_total > 0
        node = (
            await (await cluster.api()).list(
                Selection(NODE, labels=f"{labels.POOL}=h100")
            )
        ).items[0]
        try:
            await operator.patch(
                cluster, ObjectId.of(node), {"spec": {"unschedulable": True}}
            )
            cordoned = await seen_by(
                client,
                cluster,
                lambda seen: (
                    pool(seen, "h100").nodes_schedulable == before.nodes_schedulable - 1
                ),
            )
            assert pool(cordoned, "h100").nodes_total == before.nodes_total
        finally:
            await operator.patch(
                cluster, ObjectId.of(node), {"spec": {"unschedulable": None}}
            )
        await seen_by(client, cluster, lambda seen: pool(seen, "h100") == before)
        await cluster.apply(cluster.order([an_engine("main", a_member(requests=ONE))]))
        # Our own claim uses a device and does not make the node foreign.
        taken = await seen_by(
            client,
            cluster,
            lambda seen: (
                seen.pools != whole.pools
                and [each.state for each in seen.admission] == ["Admitted"]
            ),
        )
        assert sum(found.nodes_schedulable for found in taken.pools) == sum(
            found.nodes_schedulable for found in whole.pools
        )
        assert sum(found.foreign_nodes for found in taken.pools) == 0


async def test_kube_a_taint_that_a_class_lets_engine_pods_tolerate_occupies_no_node(
    cluster: ClusterUnderTest,
) -> None:
    node = (
        await (await cluster.api()).list(Selection(NODE, labels=f"{labels.POOL}=h100"))
    ).items[0]
    before = node["spec"].get("taints")
    try:
        await operator.patch(
            cluster,
            ObjectId.of(node),
            {"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}},
        )
        async with observing(cluster) as client:
            await seen_by(
                client,
                cluster,
                lambda seen: (
                    pool(seen, "h100").nodes_schedulable
                    < pool(seen, "h100").nodes_total
                ),
            )
        async with observing(
            cluster, tolerations={"h100": [{"key": "team"}]}
        ) as client:
            await seen_by(
                client,
                cluster,
                lambda seen: (
                    pool(seen, "h100").nodes_schedulable
                    == pool(seen, "h100").nodes_total
                ),
            )
    finally:
        await operator.patch(cluster, ObjectId.of(node), {"spec": {"taints": before}})


async def test_kube_unschedulable_pods_are_observed_with_their_time(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine("main", a_member(requests=TOO_MANY))])
    async with observing(cluster) as client:
        applied = await cluster.apply(order)
        # They also wait before a scheduler has handled them, without its reason.
        waiting = await seen_by(
            client,
            cluster,
            lambda seen: any(each.reason == "Unschedulable" for each in seen.admission),
        )
        (found,) = waiting.admission
        assert (found.workload, found.state, found.since > 0) == (
            applied.workload_name,
            "Pending",
            True,
        )
