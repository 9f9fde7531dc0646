"""Every serving topology through the whole control plane, with the real LeaderWorkerSet controller and the real kube-scheduler."""

import uuid
from collections.abc import AsyncIterator

import pytest

from tests.workflows.harness import ControlPlane, Json
from tests.workflows.topologies import (
    CLUSTER,
    H100,
    L40S,
    a_gang,
    a_model,
    a_pair,
    an_engine,
    claimed_nodes,
    leave_nothing,
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
    """The control plane, with a cluster whose gateway asks endpoint pickers."""
    async with routed_by_pools(plane):
        yield plane


@pytest.fixture
def namespace() -> str:
    """A tenant of the test's own."""
    return f"t-{uuid.uuid4().hex[:8]}"


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


TOPOLOGIES = {
    "a gang of four nodes": (lambda namespace: a_model("model", namespace, a_gang(nodes=3)), {"h100": 4}),
    "prefill and decode on two pools": (lambda namespace: a_pair(namespace, name="model"), {"l40s": 3, "h100": 2}),
    "two engines": (
        lambda namespace: a_model("model", namespace, an_engine("one", H100), an_engine("two", L40S, copies=2)),
        {"h100": 1, "l40s": 2},
    ),
}


@pytest.mark.parametrize("name", TOPOLOGIES)
async def test_it_is_ready_where_the_scheduler_said_rolls_without_one_node_more_and_leaves_nothing(
    pooled: ControlPlane, namespace: str, name: str
) -> None:
    make, nodes = TOPOLOGIES[name]
    document = make(namespace)
    await pooled.apply(document)
    seen = await pooled.ready("ModelDeployment", "model", namespace)
    replica = await the_replica(pooled, "model", namespace)
    assert set(pools_of(replica).values()) == set(nodes)
    assert sizes(pooled, namespace) == nodes
    held = {node for found in nodes_in_use(pooled, namespace).values() for node in found}
    assert set(claimed_nodes(pooled, namespace)) == held
    assert {pool_of_node(pooled, node) for node in held} == set(nodes)
    assert endpoint(seen) == replica["status"]["routing"]["url"] != ""
    assert replica["status"]["routing"]["surface"] == "pool"
    assert {engine["phase"] for engine in replica["status"]["engines"]} == {"Ready"}

    async with watching(pooled, "model", namespace) as watched:
        after = await rolled(pooled, with_image(document, NEXT))
    assert images(pooled, namespace) == {NEXT}
    assert all(most <= POOL_NODES for most in watched.nodes_most.values()), watched
    assert endpoint(after) == endpoint(seen)
    await leave_nothing(pooled, "model", namespace)
