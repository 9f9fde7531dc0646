"""Objects whose deletion is blocked: they are named, nothing else waits for them, and `force` skips them."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from functools import partial

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata

from api_types.messages.entities import Force
from tests.workflows.environment.harness import ControlPlane, Json, condition, message, reason
from tests.workflows.environment.one_cluster import (
    CLUSTER,
    HOLD,
    a_tenant,
    clean_up,
    held,
    here,
    images,
    nothing_is_left,
    set_finalizers,
    the_replica,
    waits_at_step,
    workload,
)
from tests.workflows.environment.together import together

pytestmark = pytest.mark.testbed


async def a_held_deletion(plane: ControlPlane, name: str, namespace: str) -> tuple[str, str]:
    """Delete a deployment whose engine has a finalizer that is never removed; gives its replica and the path of the engine."""
    await plane.apply(here(name, namespace))
    await plane.ready("ModelDeployment", name, namespace)
    replica, path = await the_replica(plane, name, namespace), workload(plane, namespace)
    set_finalizers(plane, path, HOLD)
    await plane.delete("ModelDeployment", name, namespace)
    return replica, path


async def a_finalizer_that_stays(plane: ControlPlane) -> None:
    namespace = a_tenant()
    name, path = await a_held_deletion(plane, "sticky", namespace)
    seen = await plane.until("ModelReplica", name, lambda seen: f"finalizer {HOLD}" in message(seen, "Deleting"), namespace)
    assert f"waiting for deletion of Deployment {namespace}/{path.rpartition('/')[2]}" in message(seen, "Deleting")
    done = [step["number"] for step in seen["status"]["teardown"]["steps"] if step["state"] in ("done", "not needed")]
    assert done == [1, 2, 3, 4, 5, 6]
    shown = await plane.handle("ModelReplica", name, namespace).query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    assert "| 7 | delete the engines | waiting | Deployment" in shown.current_details
    whole = await plane.until("ModelDeployment", "sticky", lambda seen: HOLD in message(seen, "Deleting"), namespace)
    assert reason(whole, "Deleting") == "WaitingForReplicas"
    assert len(await held(plane, namespace)) == 1
    set_finalizers(plane, path)
    await plane.gone("ModelDeployment", "sticky", namespace)
    await nothing_is_left(plane, namespace)


async def what_an_update_left(plane: ControlPlane) -> None:
    namespace = a_tenant()
    await plane.apply(here("updated", namespace, gpus=1))
    await plane.ready("ModelDeployment", "updated", namespace)
    name = await the_replica(plane, "updated", namespace)
    templates = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates"
    (old,) = plane.get(CLUSTER, templates)["items"]
    set_finalizers(plane, f"{templates}/{old['metadata']['name']}", HOLD)
    await plane.apply(here("updated", namespace, gpus=2))
    seen = await plane.until("ModelReplica", name, lambda seen: HOLD in str(event_messages(seen, "Pruning")), namespace)
    assert f"ResourceClaimTemplate {namespace}/{old['metadata']['name']}" in event_messages(seen, "Pruning")[-1]
    await plane.ready("ModelDeployment", "updated", namespace)
    await plane.delete("ModelDeployment", "updated", namespace)
    await plane.until("ModelReplica", name, lambda seen: waits_at_step(seen, 9), namespace)
    set_finalizers(plane, f"{templates}/{old['metadata']['name']}")
    await plane.gone("ModelDeployment", "updated", namespace)
    await nothing_is_left(plane, namespace)


def event_messages(seen: Json, why: str) -> list[str]:
    return [event["message"] for event in seen.get("status", {}).get("events", ()) if event["reason"] == why]


async def a_skipped_step(plane: ControlPlane) -> None:
    namespace = a_tenant()
    name, path = await a_held_deletion(plane, "forced", namespace)
    await plane.until("ModelReplica", name, lambda seen: HOLD in message(seen, "Deleting"), namespace)
    order = Force(request_id=uuid.uuid4().hex, by="test", scope="step", reason="the finalizer's owner is gone")
    await plane.handle("ModelDeployment", "forced", namespace).signal("force", order.wire())
    await plane.gone("ModelDeployment", "forced", namespace)
    for kind, object_name in (("ModelReplica", name), ("ModelDeployment", "forced")):
        (left,) = (await plane.handle(kind, object_name, namespace).query("describe"))["status"]["leftBehind"]
        assert (left["kind"], left["namespace"], left["name"]) == ("Deployment", namespace, path.rpartition("/")[2])
        assert left["location"] == CLUSTER
        assert "step 7 (delete the engines) was skipped" in left["reason"]
    assert plane.our_objects(CLUSTER, namespace) == [f"Deployment/{path.rpartition('/')[2]}"]
    set_finalizers(plane, path)
    await nothing_is_left(plane, namespace)


async def a_skipped_teardown(plane: ControlPlane) -> None:
    namespace = a_tenant()
    _, path = await a_held_deletion(plane, "forced", namespace)
    order = Force(request_id=uuid.uuid4().hex, by="test", scope="all", reason="the tenant is gone")
    await plane.handle("ModelDeployment", "forced", namespace).signal("force", order.wire())
    await plane.gone("ModelDeployment", "forced", namespace)
    found = (await plane.handle("ModelDeployment", "forced", namespace).query("describe"))["status"]["leftBehind"]
    assert path.rpartition("/")[2] in {left["name"] for left in found if left["kind"] == "Deployment"}
    assert {left["kind"] for left in found} <= {"Deployment", "Pod", "ReplicaSet", "ResourceClaim"}
    set_finalizers(plane, path)
    await nothing_is_left(plane, namespace)


async def a_namespace_deleted_under_a_replica(plane: ControlPlane) -> None:
    namespace = a_tenant()
    await plane.apply(here("homeless", namespace))
    await plane.ready("ModelDeployment", "homeless", namespace)
    name = await the_replica(plane, "homeless", namespace)
    hold_namespace(plane, namespace)
    plane.call(CLUSTER, "DELETE", f"/api/v1/namespaces/{namespace}")
    seen = await plane.until(
        "ModelReplica", name, lambda seen: "the namespace is being deleted" in message(seen, "ModelAccepted"), namespace
    )
    assert condition(seen, "Ready") == "False"
    assert len(await held(plane, namespace)) == 1
    release_namespace(plane, namespace)
    await plane.until("ModelReplica", name, lambda seen: condition(seen, "Ready") == "True", namespace)
    assert await images(plane, namespace) == ["registry.example/engine:1"]
    await clean_up(plane, "homeless", namespace)


async def a_namespace_deleted_under_a_teardown(plane: ControlPlane) -> None:
    namespace = a_tenant()
    await plane.apply(here("leaving", namespace))
    await plane.ready("ModelDeployment", "leaving", namespace)
    hold_namespace(plane, namespace)
    plane.call(CLUSTER, "DELETE", f"/api/v1/namespaces/{namespace}")
    await plane.delete("ModelDeployment", "leaving", namespace)
    await plane.gone("ModelDeployment", "leaving", namespace)
    await nothing_is_left(plane, namespace)
    release_namespace(plane, namespace)


def hold_namespace(plane: ControlPlane, namespace: str) -> None:
    """Put an object of another owner, whose deletion is blocked, into a namespace."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "foreign", "finalizers": [HOLD]}}
    plane.call(CLUSTER, "POST", f"/api/v1/namespaces/{namespace}/configmaps", body)


def release_namespace(plane: ControlPlane, namespace: str) -> None:
    set_finalizers(plane, f"/api/v1/namespaces/{namespace}/configmaps/foreign")


STUCK = {
    "wkl-10 a finalizer that stays is named, and holds the nodes until it is removed": a_finalizer_that_stays,
    "wkl-6 an object of an older generation whose deletion is blocked delays neither the rollout nor a deletion": what_an_update_left,
    "ruling-74 a skipped step is listed, and the next one follows": a_skipped_step,
    "ruling-74 skipping everything deletes what can be deleted and lists the rest": a_skipped_teardown,
    "a namespace that is deleted under a replica is created again once it is gone": a_namespace_deleted_under_a_replica,
    "a namespace that is being deleted does not delay a teardown": a_namespace_deleted_under_a_teardown,
}


@pytest.fixture(scope="module")
async def stories(plane: ControlPlane) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """All of them concurrently, each in a namespace of its own."""
    async with together(plane, {name: partial(scenario, plane) for name, scenario in STUCK.items()}) as started:
        yield started


@pytest.mark.parametrize("name", STUCK)
async def test_a_blocked_deletion(stories: dict[str, asyncio.Task[None]], name: str) -> None:
    await stories[name]
