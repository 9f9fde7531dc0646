"""Every serving topology through the whole control plane, with the real LeaderWorkerSet controller and the real kube-scheduler."""

from collections.abc import AsyncIterator, Callable

import pytest

from tests.workflows.environment.harness import ControlPlane, Json, condition, eventually
from tests.workflows.environment.topologies import (
    CLUSTER,
    H100,
    L40S,
    a_gang,
    a_model,
    a_pair,
    an_engine,
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
    """The control plane, with a cluster whose gateway asks endpoint pickers."""
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


TOPOLOGIES: dict[str, tuple[Callable[[str], Json], dict[str, int]]] = {
    "a gang of four nodes": (lambda namespace: a_model("model", namespace, a_gang(nodes=3)), {"h100": 4}),
    "prefill and decode on two pools": (lambda namespace: a_pair(namespace, name="model"), {"l40s": 3, "h100": 2}),
    "two engines": (
        lambda namespace: a_model("model", namespace, an_engine("one", H100), an_engine("two", L40S, copies=2)),
        {"h100": 1, "l40s": 2},
    ),
}


@pytest.mark.parametrize("name", TOPOLOGIES)
async def test_it_is_ready_where_the_scheduler_placed_it_rolls_without_one_node_more_and_leaves_nothing(
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

    async def running() -> set[str]:
        return images(pooled, namespace)

    await eventually(running, lambda found: found == {NEXT})
    assert all(most <= POOL_NODES for most in watched.nodes_most.values()), watched
    assert endpoint(after) == endpoint(seen)
    await leave_nothing(pooled, "model", namespace)


async def test_a_gang_that_loses_a_node_is_withdrawn_until_it_has_one_again_and_stays_the_same_replica(
    pooled: ControlPlane, namespace: str
) -> None:
    await pooled.apply(a_model("gang", namespace, a_gang(nodes=3)))
    before = await pooled.ready("ModelDeployment", "gang", namespace)
    uid = (await the_replica(pooled, "gang", namespace))["metadata"]["uid"]
    async with lost_node(pooled, max(nodes_in_use(pooled, namespace)["h100"])):

        async def replica() -> Json:
            return await the_replica(pooled, "gang", namespace)

        # The whole group is created again, and the pool has no fifth node for it.
        waiting = await eventually(
            replica, lambda seen: seen["status"]["phase"] == "Degraded" and "unschedulable" in str(seen["status"]["engines"])
        )
        assert condition(waiting, "Serving") == "False"
        withdrawn = await pooled.until("ModelDeployment", "gang", lambda seen: not endpoint(seen), namespace)
        assert condition(withdrawn, "ReplicasReady") == "False"
    after = await pooled.ready("ModelDeployment", "gang", namespace)
    assert endpoint(after) == endpoint(before)
    assert (await the_replica(pooled, "gang", namespace))["metadata"]["uid"] == uid
    await leave_nothing(pooled, "gang", namespace)


async def test_wkl_76_a_pair_that_loses_one_of_three_prefill_nodes_stays_in_service_and_takes_a_free_one(
    pooled: ControlPlane, namespace: str
) -> None:
    await pooled.apply(a_pair(namespace, ready_after="2s"))
    await pooled.ready("ModelDeployment", "pair", namespace)
    lost = max(nodes_in_use(pooled, namespace)["l40s"])
    async with lost_node(pooled, lost), watching(pooled, "pair", namespace) as watched:

        async def phase() -> str:
            found: str = (await the_replica(pooled, "pair", namespace))["status"]["phase"]
            return found

        await eventually(phase, lambda phase: phase == "Degraded")
        await eventually(phase, lambda phase: phase == "Ready")
        assert lost not in nodes_in_use(pooled, namespace)["l40s"]
    assert watched.endpoints_fewest == 1
    await leave_nothing(pooled, "pair", namespace)


async def test_wkl_77_a_pair_without_prefill_is_out_of_service_until_it_has_one_again(pooled: ControlPlane, namespace: str) -> None:
    await pooled.apply(a_pair(namespace, prefills=1, decodes=1, ready_after="3s"))
    before = await pooled.ready("ModelDeployment", "pair", namespace)
    async with lost_node(pooled, max(nodes_in_use(pooled, namespace)["l40s"])):
        await pooled.until("ModelDeployment", "pair", lambda seen: not endpoint(seen), namespace)
        after = await pooled.ready("ModelDeployment", "pair", namespace)
    assert endpoint(after) == endpoint(before)
    await leave_nothing(pooled, "pair", namespace)


async def test_wkl_109_pairs_of_one_name_in_two_namespaces_do_not_touch_each_other(pooled: ControlPlane, namespace: str) -> None:
    other = f"{namespace}-other"
    for tenant in (namespace, other):
        await pooled.apply(a_pair(tenant, prefills=1, decodes=1))
    for tenant in (namespace, other):
        await pooled.ready("ModelDeployment", "pair", tenant)
    async with watching(pooled, "pair", other) as watched:
        await leave_nothing(pooled, "pair", namespace)
    assert watched.endpoints_fewest == 1
    assert condition(await pooled.describe("ModelDeployment", "pair", other), "Ready") == "True"
    await leave_nothing(pooled, "pair", other)
