"""The removal of a stack's parts, and the objects that it waits for."""

import asyncio
from typing import Any

import pytest

from activities.render.stack import components, objects
from api_types import labels
from api_types.errors import NameConflict
from api_types.messages.stack import AwaitNoRoutes
from tests.activities.environment.cluster_under_test import eventually
from tests.activities.stack.stack_under_test import (
    DEFINITIONS,
    GATEWAY_API,
    MARK,
    POOLS,
    StackUnderTest,
    a_pool,
    shown,
)

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.long]

Json = dict[str, Any]

LWS, DRA = components.LEADER_WORKER_SET.key, components.DRA_DRIVER.key
GPU = "gpu.nvidia.com"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
SETS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets"
OURS = {"app.kubernetes.io/managed-by": "modelplane", "modelplane.ai/replica": "qwen-0"}


def a_route(**metadata: Any) -> Json:
    spec = {"parentRefs": [{"name": "inference-gateway"}]}
    return {
        "kind": "HTTPRoute",
        "metadata": {"name": "route", **metadata},
        "spec": spec,
    }


# Routes and pools


async def test_our_routes_and_pools_in_any_namespace_are_awaited_and_named(
    stack: StackUnderTest,
) -> None:
    assert await no_routes(stack) == [], "where no such kind is served"
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES, objects.CRDS)
    await stack.crds(plan, components.ENVOY_GATEWAY.key)
    stack.world.create(
        f"{GATEWAY_API}/namespaces/default/httproutes", a_route(name="of-others")
    )
    stack.world.create(
        POOLS,
        a_pool(name="of-others", labels={"app.kubernetes.io/managed-by": "modelplane"}),
    )
    assert await no_routes(stack) == []
    stack.world.create(
        f"{GATEWAY_API}/namespaces/modelplane-system/httproutes", a_route(labels=OURS)
    )
    stack.world.create(POOLS, a_pool(labels=OURS))
    assert await no_routes(stack) == [
        "HTTPRoute modelplane-system/route",
        "InferencePool default/pool",
    ]
    waiting = asyncio.create_task(no_routes(stack, wait_seconds=60))
    stack.world.delete(f"{POOLS}/pool")
    stack.world.delete(f"{GATEWAY_API}/namespaces/modelplane-system/httproutes/route")
    assert await waiting == []


async def no_routes(stack: StackUnderTest, wait_seconds: int = 0) -> list[str]:
    order = AwaitNoRoutes(wait_seconds=wait_seconds, **stack.base)
    return shown(await stack.run(stack.activities.await_no_routes, order))


# The Gateway, its load balancer, and its class


# Releases


async def test_a_driver_stays_while_claims_of_its_devices_are_allocated(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.ensure(plan, DRA)
    for name, driver in (
        ("of-ours", GPU),
        ("of-others", "net.example.com"),
        ("waiting", ""),
    ):
        requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
        stack.world.create(
            CLAIMS,
            {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}},
        )
        if driver:
            result = {
                "request": "gpu",
                "driver": driver,
                "pool": "node",
                "device": "gpu-0",
            }
            stack.world.patch(
                f"{CLAIMS}/{name}/status",
                {"status": {"allocation": {"devices": {"results": [result]}}}},
            )
    assert shown(
        await stack.uninstall(plan, DRA, claim_drivers=[GPU], wait_seconds=1)
    ) == ["ResourceClaim default/of-ours"]
    assert stack.world.releases() == {"mp-dra-driver-nvidia-gpu": "deployed"}
    waiting = asyncio.create_task(stack.uninstall(plan, DRA, claim_drivers=[GPU]))
    stack.world.delete(f"{CLAIMS}/of-ours")
    assert shown(await waiting) == []
    assert stack.world.releases() == {}
    for name in ("of-others", "waiting"):
        stack.world.delete(f"{CLAIMS}/{name}")


async def test_a_controller_stays_while_objects_of_its_kinds_exist(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    kinds = ["leaderworkerset.x-k8s.io/v1/LeaderWorkerSet"]
    assert shown(await stack.uninstall(plan, LWS, unused_kinds=kinds)) == [], (
        "a kind that is not served has no objects"
    )
    await stack.crds(plan, LWS)
    await stack.ensure(plan, LWS)
    pods = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "main", "image": "registry.example/x:1"}]},
    }
    template = {"size": 2, "workerTemplate": pods}
    engine = {
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "engine"},
        "spec": {"replicas": 1, "leaderWorkerTemplate": template},
    }
    stack.world.create(SETS, engine)
    (waits,) = shown(
        await stack.uninstall(plan, LWS, unused_kinds=kinds, wait_seconds=1)
    )
    assert waits.startswith("LeaderWorkerSet default/engine")
    assert stack.world.releases() == {"mp-lws": "deployed"}
    stack.world.delete(f"{SETS}/engine")
    assert shown(await stack.uninstall(plan, LWS, unused_kinds=kinds)) == []
    assert stack.world.releases() == {}


async def test_a_release_is_uninstalled_when_its_pods_are_gone(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.ensure(plan, LWS)
    await stack.until_ready(plan)
    pods = "/api/v1/namespaces/lws-system/pods"
    (controller,) = stack.world.names(pods)
    held = ["example.com/held"]
    # One pod has the label of the release, one belongs to its workload, and one is
    # foreign.
    labels = {"app": "lws-controller-manager", "app.kubernetes.io/instance": None}
    stack.world.patch(
        f"{pods}/{controller}", {"metadata": {"finalizers": held, "labels": labels}}
    )
    spec = {"containers": [{"name": "main", "image": "registry.example/x:1"}]}
    for name, instance in (("labelled", "mp-lws"), ("other", "another")):
        metadata = {
            "name": name,
            "finalizers": held,
            "labels": {"app.kubernetes.io/instance": instance},
        }
        stack.world.create(pods, {"metadata": metadata, "spec": spec})
    result = await stack.uninstall(plan, LWS, wait_seconds=1)
    assert sorted(item.name for item in result.remaining) == sorted(
        [controller, "labelled"]
    )
    assert stack.world.releases() == {}
    for name in (controller, "labelled"):
        stack.world.patch(f"{pods}/{name}", {"metadata": {"finalizers": None}})
    stack.world.delete(f"{pods}/labelled")
    assert shown(await stack.uninstall(plan, LWS)) == []
    stack.world.patch(f"{pods}/other", {"metadata": {"finalizers": None}})


# Definitions and namespaces


async def test_definitions_with_objects_are_waited_for_and_kept_if_these_are_skipped(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES, objects.CRDS)
    stack.world.create(POOLS, a_pool())
    result = await stack.remove(plan, objects.CRDS, wait_seconds=1)
    assert shown(result) == ["InferencePool default/pool"]
    assert set(objects.INFERENCE_CRDS) <= set(stack.world.names(DEFINITIONS))
    result = await stack.remove(plan, objects.CRDS, skipped=[result.remaining[0].id])
    (kept,) = result.skipped
    assert (
        f"{objects.INFERENCE_POOL_CRD} is kept: deleting it would delete 1 InferencePool"
        in kept
    )
    assert set(objects.INFERENCE_CRDS) & set(stack.world.names(DEFINITIONS)) == {
        objects.INFERENCE_POOL_CRD
    }
    stack.world.delete(f"{POOLS}/pool")
    assert shown(await stack.remove(plan, objects.CRDS)) == []
    assert not set(objects.INFERENCE_CRDS) & set(stack.world.names(DEFINITIONS))


async def test_a_namespace_that_existed_before_is_kept_without_our_marks(
    stack: StackUnderTest,
) -> None:
    stack.world.create(
        "/api/v1/namespaces",
        {"metadata": {"name": "modelplane-system", "labels": {"team": "infra"}}},
    )
    plan = await stack.plan()
    for _ in range(2):
        await stack.apply(plan, objects.NAMESPACES)
    marked = stack.world.get(MARK)
    assert marked
    assert marked["metadata"]["annotations"]["modelplane.ai/owner-uid"] == stack.uid
    for _ in range(2):
        assert shown(await stack.remove(plan, objects.NAMESPACES)) == []
    left = stack.world.get(MARK)
    assert left
    assert left["metadata"]["labels"] == {
        "team": "infra",
        "kubernetes.io/metadata.name": "modelplane-system",
    }
    assert not [
        key
        for key in left["metadata"].get("annotations", {})
        if key.startswith("modelplane.ai/")
    ]
    assert stack.world.get("/api/v1/namespaces/dra-driver-nvidia-gpu") is None


async def test_an_owned_namespace_reports_the_blockers_of_its_deletion(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES)
    stack.world.create(
        f"{MARK}/configmaps",
        {"metadata": {"name": "held", "finalizers": ["example.com/held"]}},
    )

    async def told() -> bool:
        return "example.com/held" in "".join(
            shown(await stack.remove(plan, objects.NAMESPACES, wait_seconds=1))
        )

    await eventually(told)
    skipped = ["v1/Namespace//modelplane-system"]
    assert shown(await stack.remove(plan, objects.NAMESPACES, skipped=skipped)) == []
    stack.world.patch(f"{MARK}/configmaps/held", {"metadata": {"finalizers": None}})
    assert shown(await stack.remove(plan, objects.NAMESPACES)) == []
    assert stack.world.get(MARK) is None


async def test_the_stack_of_another_cluster_object_is_not_removed(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES, objects.QUOTA_GROUP, objects.CRDS)
    another = stack.of_another()
    for group in (objects.CRDS, objects.QUOTA_GROUP, objects.NAMESPACES):
        result = await another.remove(plan, group)
        assert shown(result) == []
        assert all(
            f"belongs to InferenceCluster bare (uid {stack.uid})" in each
            for each in result.skipped
        )
    assert (await stack.look(plan)).lags == []


async def test_a_transferred_stack_is_removed_by_its_new_owner(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES, objects.QUOTA_GROUP, objects.CRDS)
    stack.world.patch(
        MARK, {"metadata": {"annotations": {"modelplane.ai/owner-uid": "another"}}}
    )
    another = stack.of_another()
    for group in (objects.CRDS, objects.QUOTA_GROUP, objects.NAMESPACES):
        result = await another.remove(plan, group)
        assert (shown(result), result.skipped) == ([], [])
    assert not set(objects.INFERENCE_CRDS) & set(stack.world.names(DEFINITIONS))


async def test_releases_of_another_owners_stack_are_neither_written_nor_removed(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES)
    await stack.ensure(plan, LWS)
    stack.world.patch(
        MARK, {"metadata": {"annotations": {labels.OWNER_UID: "of-another"}}}
    )
    with pytest.raises(NameConflict, match="belongs to"):
        await stack.ensure(plan, LWS)
    result = await stack.uninstall(plan, LWS)
    (skipped,) = result.skipped
    assert (result.remaining, "belongs to" in skipped) == ([], True)
    assert stack.world.releases() == {"mp-lws": "deployed"}
