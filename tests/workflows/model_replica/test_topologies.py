"""A gang and a prefill/decode pair on the real LeaderWorkerSet controller and kube-scheduler."""

from collections.abc import AsyncIterator

import pytest

from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    condition,
    eventually,
)
from tests.workflows.environment.topologies import (
    CLUSTER,
    a_gang,
    a_model,
    a_pair,
    claimed_nodes,
    leave_nothing,
    lost_node,
    nodes_in_use,
    pool_of_node,
    pools_of,
    rolled,
    routed_by_pools,
    the_replica,
    watching,
    with_image,
)

pytestmark = pytest.mark.testbed

NEXT = "registry.example/engine:2"
POOL_NODES = 4


@pytest.fixture(scope="module")
async def pooled(plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """Start the control plane with a cluster whose gateway uses endpoint pickers."""
    async with routed_by_pools(plane):
        yield plane


def sizes(plane: ControlPlane, namespace: str) -> dict[str, int]:
    return {pool: len(nodes) for pool, nodes in nodes_in_use(plane, namespace).items()}


def images(plane: ControlPlane, namespace: str) -> set[str]:
    return {
        container["image"]
        for pod in plane.pods(CLUSTER, namespace)
        for container in pod["spec"]["containers"]
        if container["name"] == "engine"
    }


def endpoint(seen: Json) -> str:
    (placement,) = seen["status"]["placements"]
    found: str = placement["endpoint"]
    return found


async def test_a_pair_on_two_pools_becomes_ready_rolls_out_without_an_extra_node_and_leaves_nothing(
    pooled: ControlPlane, namespace: str
) -> None:
    document, nodes = a_pair(namespace, name="model"), {"l40s": 3, "h100": 2}
    await pooled.apply(document)
    seen = await pooled.ready("ModelDeployment", "model", namespace)
    replica = await the_replica(pooled, "model", namespace)
    assert set(pools_of(replica).values()) == set(nodes)
    assert sizes(pooled, namespace) == nodes
    held = {
        node for found in nodes_in_use(pooled, namespace).values() for node in found
    }
    assert set(claimed_nodes(pooled, namespace)) == held
    assert {pool_of_node(pooled, node) for node in held} == set(nodes)
    assert endpoint(seen) == replica["status"]["routing"]["url"] != ""
    assert replica["status"]["routing"]["surface"] == "pool"
    assert {engine["phase"] for engine in replica["status"]["engines"]} == {"Ready"}

    async with watching(pooled, "model", namespace) as watched:
        after = await rolled(pooled, with_image(document, NEXT))

    async def running() -> set[str]:
        return images(pooled, namespace)

    await eventually(running, lambda found: found == {NEXT})
    assert all(most <= POOL_NODES for most in watched.nodes_most.values()), watched
    assert endpoint(after) == endpoint(seen)
    await leave_nothing(pooled, "model", namespace)


async def test_a_gang_rolls_out_and_is_withdrawn_while_it_lacks_a_node(
    pooled: ControlPlane, namespace: str
) -> None:
    document = a_model("gang", namespace, a_gang(nodes=3))
    await pooled.apply(document)
    before = await pooled.ready("ModelDeployment", "gang", namespace)
    assert sizes(pooled, namespace) == {"h100": 4}
    async with watching(pooled, "gang", namespace) as watched:
        await rolled(pooled, with_image(document, NEXT))

    async def running() -> set[str]:
        return images(pooled, namespace)

    await eventually(running, lambda found: found == {NEXT})
    assert watched.nodes_most == {"h100": 4}
    uid = (await the_replica(pooled, "gang", namespace))["metadata"]["uid"]
    async with lost_node(pooled, max(nodes_in_use(pooled, namespace)["h100"])):

        async def replica() -> Json:
            return await the_replica(pooled, "gang", namespace)

        # The whole group is created again, and the pool has no fifth node for it.
        waiting = await eventually(
            replica,
            lambda seen: (
                seen["status"]["phase"] == "Degraded"
                and "unschedulable" in str(seen["status"]["engines"])
            ),
        )
        assert condition(waiting, "Serving") == "False"
        withdrawn = await pooled.until(
            "ModelDeployment", "gang", lambda seen: not endpoint(seen), namespace
        )
        assert condition(withdrawn, "ReplicasReady") == "False"
    after = await pooled.ready("ModelDeployment", "gang", namespace)
    assert endpoint(after) == endpoint(before)
    assert (await the_replica(pooled, "gang", namespace))["metadata"]["uid"] == uid
    await leave_nothing(pooled, "gang", namespace)
