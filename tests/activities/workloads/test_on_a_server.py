"""Replicas where a real API server and its controllers matter.

The tests cover defaults, fields of others, deletion, claims and pages.
"""

import asyncio
from datetime import timedelta

import pytest

from activities.cluster_objects.cluster_api import (
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.render.objects.teardown import ENGINES
from api_types.errors import StackMissing
from tests.activities.environment.cluster_under_test import (
    ClusterUnderTest,
    eventually,
    target,
)
from tests.activities.environment.operator import patch, pod_monitors
from tests.activities.render.builders import a_gang, a_member, an_engine
from tests.activities.workloads.seen import (
    HOLD,
    LONG,
    NEVER,
    ONE,
    SLOW,
    are_ready,
    claims,
    pods,
)

pytestmark = pytest.mark.testbed("shared")


async def test_applying_twice_changes_nothing_the_second_time(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    first = await cluster.apply(order)
    assert first.changed == [
        "resource-claim-main-standalone",
        "model-serving-main",
        "model-service",
        "model-route-by-host",
        "model-route",
    ]
    again = await cluster.apply(order.model_copy(update={"inventory": first.inventory}))
    assert again.changed == []
    assert again.inventory == first.inventory
    # A lost result: the workflow knows no inventory, and gets the same one again.
    lost = await cluster.apply(order)
    assert lost.changed == []
    assert lost.inventory == first.inventory


async def test_drift_is_repaired_by_the_next_apply(cluster: ClusterUnderTest) -> None:
    order = cluster.order([an_engine(copies=2)])
    applied = await cluster.apply(order)
    workload = target(applied, "model-serving-main")
    await _scale_by_hand(cluster, workload, 1)
    repaired = await cluster.apply(
        order.model_copy(update={"inventory": applied.inventory})
    )
    assert repaired.changed == ["model-serving-main"]
    assert repaired.inventory == applied.inventory
    found = await (await cluster.api()).get(workload)
    assert found is not None
    assert found["spec"]["replicas"] == 2


async def test_nothing_but_the_namespace_is_left_of_a_deleted_replica(
    cluster: ClusterUnderTest,
) -> None:
    gang = a_gang("big", leader={"pool": "l40s"}, worker={"pool": "l40s", "nodes": 1})
    order = cluster.order([an_engine(copies=2), gang])
    applied = await cluster.apply(order)
    await eventually(lambda: are_ready(cluster, order.namespace, 4))
    assert await cluster.everything_labelled(applied)
    assert await cluster.tear_down(order, applied) == []
    assert await cluster.everything_labelled(applied) == []
    assert (
        await (await cluster.api()).get(
            ObjectId(GroupVersionKind("v1", "Namespace"), "", order.namespace)
        )
        is not None
    )
    # A worker that died after the last step repeats them all.
    assert await cluster.tear_down(order, applied) == []


async def test_the_picker_and_its_rbac_are_applied_and_deleted_with_the_replica(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    order = order.model_copy(
        update={"facts": cluster.facts.model_copy(update={"routing": "pool"})}
    )
    async with cluster.watching() as client:
        applied = await cluster.apply(order)
        kinds = {
            ObjectId.parse(entry.id).kind.kind
            for entry in applied.inventory
            if entry.key.startswith("epp")
        }
        assert kinds == {
            "ServiceAccount",
            "Role",
            "RoleBinding",
            "ConfigMap",
            "Service",
            "Deployment",
        }

        def pool_is_accepted() -> bool:
            seen = client.replica(f"modelreplica/{order.namespace}/{order.name}")
            return seen is not None and [
                (pool.name, pool.accepted) for pool in seen.pools
            ] == [(f"{applied.workload_name}-pool", True)]

        await eventually(pool_is_accepted)
    assert (
        await cluster.apply(order.model_copy(update={"inventory": applied.inventory}))
    ).changed == []
    assert await cluster.tear_down(order, applied) == []
    assert await cluster.everything_labelled(applied) == []


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(an_engine("main", a_member(annotations=SLOW)), id="Deployment"),
        pytest.param(
            a_gang(
                "main",
                leader={"pool": "l40s", "annotations": SLOW},
                worker={"pool": "l40s", "nodes": 1},
            ),
            id="LeaderWorkerSet",
        ),
    ],
)
async def test_engines_are_deleted_only_when_their_pods_and_claims_are_gone(
    cluster: ClusterUnderTest, engine: Json
) -> None:
    order = cluster.order([engine])
    applied = await cluster.apply(order)
    await eventually(
        lambda: are_ready(cluster, order.namespace, len(engine["members"]))
    )
    cluster.heartbeats.clear()
    step = asyncio.create_task(cluster.step(order, applied, 7))
    await eventually(
        lambda: [
            beat
            for beat in cluster.heartbeats
            if any(item.startswith("Pod ") for item in beat[0].get("waitingFor", ()))
        ]
    )
    assert not step.done()
    await step
    assert await pods(cluster, order.namespace) == []
    assert (
        await (await cluster.api()).list(
            Selection(
                GroupVersionKind("resource.k8s.io/v1", "ResourceClaim"), order.namespace
            )
        )
    ).items == []


async def test_claims_of_a_workload_with_a_long_name_are_awaited(
    cluster: ClusterUnderTest,
) -> None:
    """The API server truncates the workload's name in the names of its pods."""
    order = cluster.order([an_engine("main" * 4, a_member(requests=ONE))], name=LONG)
    applied = await cluster.apply(order)
    assert len(target(applied, "model-serving-" + "main" * 4).name) == 63
    await eventually(lambda: are_ready(cluster, order.namespace, 1))
    (claim,) = await claims(cluster, order.namespace)
    await patch(
        cluster,
        ObjectId.of(claim),
        {"metadata": {"finalizers": [*claim["metadata"]["finalizers"], HOLD]}},
    )

    held = await cluster.step(order, applied, ENGINES, wait_seconds=3)

    assert await pods(cluster, order.namespace) == []
    assert [(item.id, HOLD in item.why) for item in held.remaining] == [
        (str(ObjectId.of(claim)), True)
    ]
    await patch(cluster, ObjectId.of(claim), {"metadata": {"finalizers": []}})
    assert (await cluster.step(order, applied, ENGINES)).remaining == []
    assert await claims(cluster, order.namespace) == []


async def test_a_namespace_that_is_being_deleted_is_fine_for_a_teardown(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    applied = await cluster.apply(order)
    await (await cluster.api()).delete(
        ObjectId(GroupVersionKind("v1", "Namespace"), "", order.namespace),
        propagation="Background",
    )
    assert await cluster.tear_down(order, applied) == []


async def test_an_apply_that_needs_a_missing_kind_succeeds_once_it_is_installed(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    order = order.model_copy(
        update={
            "facts": cluster.facts.model_copy(
                update={"apis": [*cluster.facts.apis, "monitoring.coreos.com/v1"]}
            )
        }
    )
    with pytest.raises(StackMissing, match=r"PodMonitor of monitoring\.coreos\.com/v1"):
        await cluster.apply(order)
    async with pod_monitors(cluster):
        applied = await cluster.apply(order)
        assert (
            await (await cluster.api()).get(target(applied, "monitor-engines"))
            is not None
        )
        await cluster.tear_down(order, applied)
    assert await cluster.everything_labelled(applied) == []


async def _scale_by_hand(
    cluster: ClusterUnderTest, workload: ObjectId, replicas: int
) -> None:
    await patch(cluster, workload, {"spec": {"replicas": replicas}})


async def test_long_lists_are_read_page_by_page(
    cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.clients.kubernetes.client._PAGE_ITEMS", (2,))
    nodes = (
        await (await cluster.api()).list(Selection(GroupVersionKind("v1", "Node")))
    ).items
    assert (
        len({node["metadata"]["name"] for node in nodes}) == 9
    )  # eight of the pools, and the one without GPUs
    assert all((node["apiVersion"], node["kind"]) == ("v1", "Node") for node in nodes)


async def test_pods_that_do_not_end_are_deleted_without_grace_only_if_that_is_set(
    cluster: ClusterUnderTest,
) -> None:
    stuck = a_member(annotations={"testbed.modelplane.ai/delete-after": NEVER})
    stuck["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    order = cluster.order([an_engine("main", stuck)])
    applied = await cluster.apply(order)
    await eventually(lambda: are_ready(cluster, order.namespace, 1))
    assert {
        item.kind
        for item in (await cluster.step(order, applied, 7, wait_seconds=4)).remaining
    } == {"Pod", "Deployment"}
    # Without force they would be gone after 300 s by themselves.
    assert (
        await cluster.step(
            order, applied, 7, wait_seconds=100, force_after=timedelta(seconds=1)
        )
    ).remaining == []
    assert await pods(cluster, order.namespace) == []
