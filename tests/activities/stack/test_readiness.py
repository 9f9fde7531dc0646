"""The observation of a stack, and when it is reported."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from activities.render.stack import components, objects
from api_types.errors import TransientError
from api_types.messages.stack import Lag, StackPlan, StackSeen
from tests.activities.environment import operator
from tests.activities.environment.cluster_under_test import cluster_from, eventually
from tests.activities.environment.tcp_proxy import TcpProxy
from tests.activities.stack.stack_under_test import (
    DEFINITIONS,
    MARK,
    StackUnderTest,
    changed,
)
from tests.environment.stack_charts import leader_worker_set
from tests.environment.waiting import TIMEOUT_SECONDS

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.long]

LWS, NFD, DRA = (
    components.LEADER_WORKER_SET.key,
    components.NODE_FEATURE_DISCOVERY.key,
    components.DRA_DRIVER.key,
)
AI_GATEWAY = components.AI_GATEWAY.key
CONTROLLER = (
    "/apis/apps/v1/namespaces/envoy-ai-gateway-system/deployments/ai-gateway-controller"
)
LWS_CONTROLLER = (
    "/apis/apps/v1/namespaces/lws-system/deployments/lws-controller-manager"
)
POOLS = f"{DEFINITIONS}/{objects.INFERENCE_POOL_CRD}"


async def installed(stack: StackUnderTest, *keys: str) -> StackPlan:
    """Install some releases without anything else, and wait for them."""
    plan = await stack.plan()
    for key in keys:
        await stack.ensure(plan, key)
    await stack.until_ready(plan)
    return plan


# The AI gateway looks for pools only when it starts


async def test_the_ai_gateway_is_restarted_once_for_definitions_newer_than_its_pods(
    stack: StackUnderTest,
) -> None:
    plan = await installed(stack, AI_GATEWAY)
    assert not await stack.restart(), "there is nothing to look for yet"
    await stack.apply(plan, objects.NAMESPACES, objects.CRDS)
    assert (await stack.look(plan)).restart
    before = _generation(stack)
    assert await stack.restart()
    assert not (await stack.look(plan)).restart
    # A repetition changes nothing, whether its response was lost or the old pods still
    # exist.
    assert await stack.restart()
    assert _generation(stack) == before + 1
    assert not (await stack.until_ready(plan)).restart
    assert (await stack.ensure(plan, AI_GATEWAY)).revision == 1
    assert _generation(stack) == before + 1
    stack.world.delete(POOLS)
    await eventually(lambda: stack.world.get(POOLS) is None)
    lost = await stack.look(plan)
    missing = Lag(
        target=objects.CRDS,
        object=f"CustomResourceDefinition {objects.INFERENCE_POOL_CRD}",
        why="does not exist",
        missing=True,
    )
    assert (lost.restart, lost.lags) == (False, [missing])
    await _next_second()
    await stack.apply(plan, objects.CRDS)
    assert (await stack.look(plan)).restart


async def _next_second() -> None:
    """Wait for the next second.

    Kubernetes stores times in whole seconds, so the order of events within one second
    is unknown.
    """
    await asyncio.sleep(1.1)


def _generation(stack: StackUnderTest) -> int:
    found = stack.world.get(CONTROLLER)
    assert found
    generation: int = found["metadata"]["generation"]
    return generation


# The address of the Gateway


async def test_without_a_service_its_controller_is_named(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES)
    await stack.crds(plan, components.ENVOY_GATEWAY.key)
    await stack.apply(plan, objects.PROXY, objects.CLASS, objects.GATEWAY)
    seen = await stack.look(plan)
    assert (seen.address, seen.address_events) == (
        "",
        ["Envoy Gateway made no Service for it yet"],
    )
    assert [(lag.target, lag.object, lag.gates, lag.missing) for lag in seen.lags] == [
        (objects.CLASS, "GatewayClass envoy", True, False),
        (objects.GATEWAY, "Gateway modelplane-system/inference-gateway", True, False),
    ]


# Workloads and devices


async def test_a_pool_without_nodes_is_ready_without_devices_and_not_without_their_class(
    stack: StackUnderTest,
) -> None:
    plan = await installed(stack, DRA)
    seen = await stack.look(plan)
    nodes = len(
        [
            each
            for each in stack.world.items("/api/v1/nodes")
            if "modelplane.ai/pool" in each["metadata"]["labels"]
        ]
    )
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    assert (seen.device_slices, seen.notes, nodes) == (
        len(stack.world.items(slices)),
        [],
        2,
    )
    stack.world.patch(
        "/apis/apps/v1/namespaces/dra-driver-nvidia-gpu/daemonsets/dra-kubelet-plugin",
        {
            "spec": {
                "template": {
                    "spec": {"nodeSelector": {"modelplane.ai/pool": "of-no-nodes"}}
                }
            }
        },
    )
    kept = stack.world.items(slices)
    for each in kept:
        stack.world.delete(f"{slices}/{each['metadata']['name']}")
    try:
        seen = await stack.until(
            plan, lambda seen: seen.lags == [] and seen.device_slices == 0
        )
        assert seen.notes == [
            (
                "no ResourceSlice of gpu.nvidia.com is published: no node has GPUs yet, "
                "or the driver of the nodes does not answer"
            )
        ]
    finally:
        for each in kept:
            metadata = {
                key: each["metadata"][key]
                for key in ("name", "ownerReferences")
                if key in each["metadata"]
            }
            stack.world.create(slices, {"metadata": metadata, "spec": each["spec"]})
    stack.world.delete("/apis/resource.k8s.io/v1/deviceclasses/gpu.nvidia.com")
    (lag,) = (await stack.look(plan)).lags
    assert lag == Lag(
        target=DRA, object="DeviceClass gpu.nvidia.com", why="does not exist"
    )


async def test_one_broken_node_is_reported_and_does_not_block(
    stack: StackUnderTest,
) -> None:
    plan = await installed(stack, NFD)
    workers = [
        each["metadata"]["name"]
        for each in _pods(stack)
        if each["metadata"]["name"].startswith("nfd-worker")
    ]
    for number, worker in enumerate(workers, 1):
        _break(stack, worker)
        left = len(workers) - number
        seen = await stack.until(
            plan, partial(_says, f"{left}/{len(workers)} pods are available")
        )
        (lag,) = seen.lags
        assert (lag.target, lag.object) == (
            NFD,
            "DaemonSet node-feature-discovery/nfd-worker",
        )
        assert lag.gates == (left == 0)


async def test_objects_of_the_prometheus_operator_are_judged_too(
    stack: StackUnderTest,
) -> None:
    plan = await installed(stack, components.PROMETHEUS.key)
    owner = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "name": "prometheus",
        "uid": "of-no-object",
    }
    sets = "/apis/apps/v1/namespaces/monitoring/statefulsets"
    for name, owners in (("prometheus-prometheus", [owner]), ("of-others", [])):
        notes = {"testbed.modelplane.ai/ready": "never"}
        pods = {
            "metadata": {"labels": {"app": name}, "annotations": notes},
            "spec": {"containers": [{"name": "main", "image": "registry.example/x:1"}]},
        }
        spec = {
            "selector": {"matchLabels": {"app": name}},
            "serviceName": name,
            "template": pods,
        }
        stack.world.create(
            sets, {"metadata": {"name": name, "ownerReferences": owners}, "spec": spec}
        )
    seen = await stack.until(plan, partial(_says, "0/1 pods are ready"))
    assert [(lag.target, lag.object, lag.gates) for lag in seen.lags] == [
        (
            components.PROMETHEUS.key,
            "StatefulSet monitoring/prometheus-prometheus",
            True,
        )
    ]


def _says(why: str, seen: StackSeen) -> bool:
    return why in [lag.why for lag in seen.lags]


def _pods(stack: StackUnderTest) -> list[dict[str, Any]]:
    return stack.world.items("/api/v1/namespaces/node-feature-discovery/pods")


def _break(stack: StackUnderTest, pod: str) -> None:
    notes = {"testbed.modelplane.ai/fail": "crash"}
    stack.world.patch(
        f"/api/v1/namespaces/node-feature-discovery/pods/{pod}",
        {"metadata": {"annotations": notes}},
    )


# Releases


async def test_releases_changed_by_another_user_are_reported_and_restored(
    stack: StackUnderTest,
) -> None:
    """Helm's own Secrets show revisions and their states.

    Rewriting a release restores a deleted workload.
    """
    plan = await installed(stack, LWS)
    seen = await stack.look(plan)
    waiting = asyncio.create_task(changed(stack, plan, seen))
    await eventually(
        lambda: (
            {"problem": "", "lags": []}
            in [found for (found,) in stack.cluster.heartbeats]
        )
    )
    stack.world.delete(LWS_CONTROLLER)
    (lag,) = (await waiting).lags
    assert (lag.object, lag.missing, lag.gates) == (
        "Deployment lws-system/lws-controller-manager",
        True,
        True,
    )
    await stack.look(
        plan, known=(await stack.look(plan)).digest, max_seconds=1, poll_seconds=1
    )
    told = [
        line for (found,) in stack.cluster.heartbeats for line in found.get("lags", ())
    ]
    assert any(
        line.startswith("Deployment lws-system/lws-controller-manager: ")
        for line in told
    )
    # The release is unchanged, so Helm finds nothing to do.
    assert (await stack.ensure(plan, LWS)).revision == 1
    assert (await stack.look(plan)).lags != []
    assert (await stack.ensure_release(plan.releases[LWS], rewrite=True)).revision == 2
    stack.ensured[LWS] = stack.ensured[LWS].model_copy(update={"revision": 2})
    assert (await stack.until_ready(plan)).lags == []

    theirs = plan.releases[LWS].model_copy(update={"values": {"replicas": 3}})
    assert (await stack.ensure_release(theirs)).revision == 3
    seen = await stack.until(plan, lambda seen: not seen.gating((LWS,)))
    assert seen.lags == [
        _a_release("its revision is 3, and 2 was installed").model_copy(
            update={"gates": False}
        )
    ]
    assert (await stack.ensure(plan, LWS)).revision == 4
    assert (await stack.until_ready(plan)).lags == []

    (newest,) = stack.world.items(
        "/api/v1/namespaces/lws-system/secrets?labelSelector=owner%3Dhelm,version%3D4"
    )
    path = f"/api/v1/namespaces/lws-system/secrets/{newest['metadata']['name']}"
    stack.world.patch(path, {"metadata": {"labels": {"status": "failed"}}})
    assert (await stack.look(plan)).lags == [_a_release("its status is failed")]
    stack.world.patch(path, {"metadata": {"labels": {"status": "deployed"}}})
    for number in (9, 10):
        marks = {
            "owner": "helm",
            "name": "mp-lws",
            "status": "deployed",
            "version": str(number),
        }
        stack.world.create(
            "/api/v1/namespaces/lws-system/secrets",
            {"metadata": {"name": f"revision-{number}", "labels": marks}},
        )
    (lag,) = (await stack.look(plan)).lags
    assert lag.why == "its revision is 10, and 4 was installed"
    for number in (9, 10):
        stack.world.delete(f"/api/v1/namespaces/lws-system/secrets/revision-{number}")

    await stack.uninstall(plan, LWS)
    lost = Lag(
        target=LWS,
        object="Deployment lws-system/lws-controller-manager",
        why="does not exist",
        missing=True,
    )
    assert (await stack.look(plan)).lags == [_a_release("does not exist"), lost]
    assert (await stack.ensure(plan, LWS)).revision == 1
    assert (await stack.until_ready(plan)).lags == []


def _a_release(why: str) -> Lag:
    return Lag(target=LWS, object="release lws-system/mp-lws", why=why, missing=True)


# Changes of others


async def test_objects_taken_over_or_deleted_by_another_owner_are_reported(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES, objects.QUOTA_GROUP)
    assert (await stack.look(plan)).lags == []
    quota = (
        "/api/v1/namespaces/dra-driver-nvidia-gpu/resourcequotas/allow-critical-pods"
    )
    stack.world.patch(
        quota,
        {
            "metadata": {
                "annotations": {
                    "modelplane.ai/owner-uid": "x",
                    "modelplane.ai/owner-name": "us-1",
                }
            }
        },
    )
    (lag,) = (await stack.look(plan)).lags
    assert (lag.target, lag.missing, lag.gates) == (objects.QUOTA_GROUP, False, True)
    assert (
        "allow-critical-pods exists already and belongs to InferenceCluster us-1 (uid x)"
        in lag.why
    )
    stack.world.delete(quota)
    (lag,) = (await stack.look(plan)).lags
    assert (lag.target, lag.why, lag.missing) == (
        objects.QUOTA_GROUP,
        "does not exist",
        True,
    )


async def test_a_namespace_that_is_being_deleted_must_be_applied_again(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES)
    held = {"metadata": {"name": "held", "finalizers": ["example.com/held"]}}
    stack.world.create(f"{MARK}/configmaps", held)
    stack.world.delete(MARK)
    (lag,) = (await stack.look(plan)).lags
    assert lag == Lag(
        target=objects.NAMESPACES,
        object="Namespace modelplane-system",
        why="is being deleted",
        missing=True,
    )
    stack.world.patch(f"{MARK}/configmaps/held", {"metadata": {"finalizers": None}})


# Reports


async def test_a_check_without_a_change_ends_at_its_time_limit(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES)
    seen = await stack.look(plan)
    begun = asyncio.get_running_loop().time()
    assert (
        await stack.look(plan, known=seen.digest, max_seconds=2, poll_seconds=1) == seen
    )
    assert asyncio.get_running_loop().time() - begun >= 2


async def test_a_short_change_is_not_reported(stack: StackUnderTest) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES, objects.QUOTA_GROUP)
    seen = await stack.look(plan)
    quota = (
        "/api/v1/namespaces/dra-driver-nvidia-gpu/resourcequotas/allow-critical-pods"
    )
    stack.world.delete(quota)
    waiting = asyncio.create_task(
        stack.look(
            plan, known=seen.digest, confirm_seconds=5, max_seconds=6, poll_seconds=1
        )
    )
    await asyncio.sleep(1)
    await stack.apply(plan, objects.QUOTA_GROUP)
    assert (await waiting) == seen


async def test_another_plan_of_the_worker_is_reported(stack: StackUnderTest) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES)
    seen = await stack.look(plan)
    assert seen.wanted == plan.digest
    stack.world.charts.add(leader_worker_set("v0.8.21"))
    pinned = stack.with_settings(versions={"leaderWorkerSet": "v0.8.21"})
    changed = await pinned.look(plan, known=seen.digest, max_seconds=60)
    assert changed.wanted == (await pinned.plan()).digest != plan.digest
    # Settings without a valid plan do not change the current one. The next preflight
    # reports the problem.
    assert (
        await stack.with_settings(versions={"envoyGateway": "v1.7.0"}).look(plan)
    ).wanted == plan.digest


async def test_a_worker_that_shuts_down_hands_its_check_to_another_one(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES)
    known = (await stack.look(plan)).digest
    stack.cluster.heartbeats.clear()
    environment = stack.cluster.environment()
    order = stack.check(plan, known=known, max_seconds=600)
    waiting = asyncio.create_task(
        environment.run(stack.activities.stack_readiness, order)
    )
    await eventually(lambda: stack.cluster.heartbeats)
    environment.worker_shutdown()
    with pytest.raises(TransientError, match="the worker shuts down"):
        await asyncio.wait_for(waiting, TIMEOUT_SECONDS)


@pytest_asyncio.fixture
async def proxied(
    stack: StackUnderTest, tmp_path: Path
) -> AsyncIterator[tuple[StackUnderTest, TcpProxy]]:
    """The same cluster, reached through a proxy that can be closed."""
    kubeconfig = stack.world.cluster.kubeconfig.read_text()
    server = operator.server_of(kubeconfig)
    async with TcpProxy(server).listening() as proxy:
        through = await cluster_from(
            stack.cluster.name,
            kubeconfig.replace(server, f"https://127.0.0.1:{proxy.port}"),
            tmp_path,
        )
        yield stack.reached_by(through), proxy
        await through.pool.close()


async def test_a_cluster_that_does_not_respond_is_checked_again(
    proxied: tuple[StackUnderTest, TcpProxy],
) -> None:
    through, proxy = proxied
    plan = await through.plan()
    await through.apply(plan, objects.NAMESPACES, objects.QUOTA_GROUP)
    seen = await through.look(plan)
    proxy.refuse()
    waiting = asyncio.create_task(changed(through, plan, seen))
    problems = await eventually(
        lambda: [
            found["problem"]
            for (found,) in through.cluster.heartbeats
            if found.get("problem")
        ]
    )
    assert "https://127.0.0.1" in problems[0]
    through.world.delete(
        "/api/v1/namespaces/dra-driver-nvidia-gpu/resourcequotas/allow-critical-pods"
    )
    assert not waiting.done()
    proxy.restore()
    (lag,) = (await waiting).lags
    assert (lag.target, lag.missing) == (objects.QUOTA_GROUP, True)
