"""Lives of replicas whose deletion is blocked or forced, or whose workflow is terminated.

Only a real API server shows the rest: tests/workflows/model_replica/test_blocked_deletion.py.
"""

import uuid

import pytest

from api_types import labels, names
from api_types.messages.entities import Force
from tests.simulation.lives.steady_fleet import SteadyFleet, a_cluster, in_virtual_time
from tests.workflows.environment.harness import Json, a_deployment, condition, eventually, message
from tests.workflows.environment.one_cluster import (
    CLUSTER,
    HOLD,
    clean_up,
    held,
    here,
    nothing_is_left,
    set_finalizers,
    the_replica,
    waits_at_step,
    workload,
)


async def a_serving_replica(plane: SteadyFleet, namespace: str, **more: int) -> str:
    """Apply the deployment `qwen`; return its replica, which is Ready."""
    await plane.apply(here("qwen", namespace, **more))
    await plane.ready("ModelDeployment", "qwen", namespace)
    return await the_replica(plane, "qwen", namespace)


async def a_held_deletion(plane: SteadyFleet, namespace: str) -> tuple[str, str]:
    """Delete a deployment whose engine has a finalizer that stays.

    Return its replica and the path of the engine.
    """
    replica = await a_serving_replica(plane, namespace)
    path = workload(plane, namespace)
    set_finalizers(plane, path, HOLD)
    await plane.delete("ModelDeployment", "qwen", namespace)
    return replica, path


def a_force(scope: str) -> Json:
    """Return an order to skip a step or all of a teardown."""
    order = Force(request_id=uuid.uuid4().hex, by="test", reason="the tenant is gone", scope="all")
    return {**order.wire(), "scope": scope}


def pruning(seen: Json) -> list[str]:
    """Return the messages about objects of older generations."""
    events = seen.get("status", {}).get("events", ())
    return [event["message"] for event in events if event["reason"] == "Pruning"]


@in_virtual_time
async def test_an_object_of_an_older_generation_whose_deletion_is_blocked_delays_no_rollout(
    plane: SteadyFleet, namespace: str
) -> None:
    name = await a_serving_replica(plane, namespace, gpus=1)
    templates = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates"
    (old,) = plane.get(CLUSTER, templates)["items"]
    old_name = old["metadata"]["name"]
    set_finalizers(plane, f"{templates}/{old_name}", HOLD)
    await plane.apply(here("qwen", namespace, gpus=2))
    seen = await plane.until(
        "ModelReplica", name, lambda seen: HOLD in str(pruning(seen)), namespace
    )
    assert f"ResourceClaimTemplate {namespace}/{old_name}" in pruning(seen)[-1]
    await plane.ready("ModelDeployment", "qwen", namespace)
    await plane.delete("ModelDeployment", "qwen", namespace)
    await plane.until("ModelReplica", name, lambda seen: waits_at_step(seen, 9), namespace)
    set_finalizers(plane, f"{templates}/{old_name}")
    await plane.gone("ModelDeployment", "qwen", namespace)
    await nothing_is_left(plane, namespace)


@in_virtual_time
async def test_a_skipped_step_is_listed_and_the_next_one_follows(
    plane: SteadyFleet, namespace: str
) -> None:
    name, path = await a_held_deletion(plane, namespace)
    await plane.until(
        "ModelReplica", name, lambda seen: HOLD in message(seen, "Deleting"), namespace
    )
    await plane.handle("ModelDeployment", "qwen", namespace).signal("force", a_force("step"))
    await plane.gone("ModelDeployment", "qwen", namespace)
    engine = path.rpartition("/")[2]
    for kind, named in (("ModelReplica", name), ("ModelDeployment", "qwen")):
        seen = await plane.handle(kind, named, namespace).query("describe")
        (left,) = seen["status"]["leftBehind"]
        where = (left["kind"], left["namespace"], left["name"], left["location"])
        assert where == ("Deployment", namespace, engine, CLUSTER)
        assert "step 7 (delete the engines) was skipped" in left["reason"]
    assert plane.our_objects(CLUSTER, namespace) == [f"Deployment/{engine}"]
    set_finalizers(plane, path)
    await nothing_is_left(plane, namespace)


async def until_collected(plane: SteadyFleet, namespace: str) -> None:
    """Wait until the garbage collector has deleted the dependents of a left object."""

    async def our_objects() -> list[str]:
        return plane.our_objects(CLUSTER, namespace)

    await eventually(our_objects, lambda found: found == [], what="the garbage collection")


@in_virtual_time
async def test_a_forced_teardown_deletes_all_it_can_and_lists_the_rest(
    plane: SteadyFleet, namespace: str
) -> None:
    _, path = await a_held_deletion(plane, namespace)
    await plane.handle("ModelDeployment", "qwen", namespace).signal("force", a_force("all"))
    await plane.gone("ModelDeployment", "qwen", namespace)
    seen = await plane.handle("ModelDeployment", "qwen", namespace).query("describe")
    found = seen["status"]["leftBehind"]
    engines = {left["name"] for left in found if left["kind"] == "Deployment"}
    assert path.rpartition("/")[2] in engines
    assert {left["kind"] for left in found} <= {"Deployment", "Pod", "ReplicaSet", "ResourceClaim"}
    set_finalizers(plane, path)
    await until_collected(plane, namespace)
    await nothing_is_left(plane, namespace)


@in_virtual_time
async def test_a_namespace_that_is_being_deleted_does_not_delay_a_teardown(
    plane: SteadyFleet, namespace: str
) -> None:
    await a_serving_replica(plane, namespace)
    foreign = {"name": "foreign", "finalizers": [HOLD]}
    path = f"/api/v1/namespaces/{namespace}"
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": foreign}
    plane.call(CLUSTER, "POST", f"{path}/configmaps", document)
    plane.call(CLUSTER, "DELETE", path)
    await plane.delete("ModelDeployment", "qwen", namespace)
    await plane.gone("ModelDeployment", "qwen", namespace)
    await nothing_is_left(plane, namespace)


@in_virtual_time
async def test_a_terminated_replica_is_deleted_with_all_its_objects(
    plane: SteadyFleet, namespace: str
) -> None:
    replica = await a_serving_replica(plane, namespace)
    await plane.handle("ModelReplica", replica, namespace).terminate("an accident")
    await clean_up(plane, "qwen", namespace)


@in_virtual_time
async def test_a_replica_terminated_during_its_teardown_resumes_it(
    plane: SteadyFleet, namespace: str
) -> None:
    async def waits() -> str:
        await plane.until(
            "ModelReplica", replica, lambda seen: HOLD in message(seen, "Deleting"), namespace
        )
        run = (await plane.handle("ModelReplica", replica, namespace).describe()).run_id
        return str(run)

    replica, path = await a_held_deletion(plane, namespace)
    first = await waits()
    await plane.handle("ModelReplica", replica, namespace).terminate("an accident")
    assert await waits() != first
    assert len(await held(plane, namespace)) == 1
    set_finalizers(plane, path)
    await plane.gone("ModelDeployment", "qwen", namespace)
    await nothing_is_left(plane, namespace)


@pytest.mark.parametrize("evict", [False, True], ids=["forced", "evicting"])
@in_virtual_time
async def test_a_deletion_of_a_cluster_ends_its_replicas_which_are_placed_elsewhere(
    plane: SteadyFleet, namespace: str, evict: bool
) -> None:
    await plane.apply(a_deployment("moved", namespace))
    seen = await plane.ready("ModelDeployment", "moved", namespace)
    (placement,) = seen["status"]["placements"]
    cluster, replica = placement["cluster"], placement["replica"]
    await plane.delete("InferenceCluster", cluster, evict=evict)
    if not evict:
        waits = f"waits until ModelReplica {namespace}/{replica}"
        await plane.until(
            "InferenceCluster", cluster, lambda seen: waits in message(seen, "Deleting")
        )
        await plane.force("InferenceCluster", cluster)
    await plane.gone("InferenceCluster", cluster)
    await plane.gone("ModelReplica", replica, namespace)
    left = await plane.handle("ModelReplica", replica, namespace).query("describe")
    said = {
        event["message"] for event in left["status"]["events"] if event["reason"] == "Abandoned"
    }
    kinds = {item["kind"] for item in left["status"].get("leftBehind", ())}
    assert ("the InferenceCluster was deleted" in said, "Deployment" in kinds) == (
        not evict,
        not evict,
    )
    assert len(plane.pods(cluster, namespace)) == (0 if evict else 1)
    again = await plane.ready("ModelDeployment", "moved", namespace)
    assert [each["cluster"] != cluster for each in again["status"]["placements"]] == [True]


@in_virtual_time
async def test_a_deleted_cluster_stays_until_its_replicas_are_gone_and_gets_no_new_ones(
    plane: SteadyFleet, namespace: str
) -> None:
    other = f"{namespace}-other"
    replicas = [
        f"{tenant}/{await a_serving_replica(plane, tenant)}" for tenant in (namespace, other)
    ]
    replicas.sort()
    # The class of its nodes cannot be resolved any more.
    await plane.handle("InferenceClass", "h100").terminate("lost on purpose")
    await plane.delete("InferenceCluster", CLUSTER)
    both = f"waits until ModelReplica {', '.join(replicas)} are gone"
    await plane.until("InferenceCluster", CLUSTER, lambda seen: both in message(seen, "Deleting"))
    await plane.apply(here("late", namespace))
    await plane.until(
        "ModelDeployment",
        "late",
        lambda seen: "are being deleted" in message(seen, "ReplicasScheduled"),
        namespace,
    )
    for name, tenant in (("late", namespace), ("qwen", namespace)):
        await plane.delete("ModelDeployment", name, tenant)
        await plane.gone("ModelDeployment", name, tenant)
    (left,) = (each for each in replicas if each.startswith(other))
    last = f"ModelReplica {left} is gone"
    await plane.until("InferenceCluster", CLUSTER, lambda seen: last in message(seen, "Deleting"))
    await plane.delete("ModelDeployment", "qwen", other)
    await plane.gone("InferenceCluster", CLUSTER)


@in_virtual_time
async def test_a_cluster_that_was_terminated_and_applied_again_is_followed_and_can_be_deleted(
    plane: SteadyFleet, namespace: str
) -> None:
    replica = await a_serving_replica(plane, namespace)
    await plane.handle("InferenceCluster", CLUSTER).terminate("lost on purpose")
    secrets = plane.world.parts.secrets
    known = secrets.pop((labels.SYSTEM_NAMESPACE, f"{CLUSTER}-kubeconfig"))
    plane.put_secret(labels.SYSTEM_NAMESPACE, "another-kubeconfig", known)
    await plane.apply(a_cluster(CLUSTER, of="another"))
    await plane.ready("InferenceCluster", CLUSTER)
    await plane.delete("InferenceCluster", CLUSTER)
    waits = f"waits until ModelReplica {namespace}/{replica} is gone"
    await plane.until("InferenceCluster", CLUSTER, lambda seen: waits in message(seen, "Deleting"))
    await clean_up(plane, "qwen", namespace)
    await plane.gone("InferenceCluster", CLUSTER)


@in_virtual_time
async def test_a_replica_that_was_terminated_with_its_cluster_is_deleted_through_its_connection(
    plane: SteadyFleet, namespace: str
) -> None:
    replica = await a_serving_replica(plane, namespace)
    await plane.handle("InferenceCluster", CLUSTER).terminate("lost on purpose")
    await plane.handle("ModelReplica", replica, namespace).terminate("lost on purpose")
    await plane.delete("ModelDeployment", "qwen", namespace)
    await plane.gone("ModelDeployment", "qwen", namespace)
    assert plane.our_objects(CLUSTER, namespace) == []


@in_virtual_time
async def test_a_replica_that_was_terminated_is_started_again_and_gets_the_new_template(
    plane: SteadyFleet, namespace: str
) -> None:
    replica = await a_serving_replica(plane, namespace)
    await plane.handle("ModelReplica", replica, namespace).terminate("an accident")
    await plane.apply(here("qwen", namespace, gpus=2))
    seen = await plane.until(
        "ModelDeployment",
        "qwen",
        lambda seen: (
            seen["status"]["observedGeneration"] == 2
            and condition(seen, "Ready") == "True"
            and seen["status"]["rollout"]["updatedReady"] == 1
        ),
        namespace,
    )
    assert "ReplicaLost" in {event["reason"] for event in seen["status"]["events"]}
    assert await the_replica(plane, "qwen", namespace) == replica
    await clean_up(plane, "qwen", namespace)


@in_virtual_time
async def test_a_replica_that_was_lost_with_its_cluster_deployment_and_scheduler_is_deleted_by_name(
    plane: SteadyFleet, namespace: str
) -> None:
    replica = await a_serving_replica(plane, namespace)
    await plane.client.get_workflow_handle(names.FLEET_SCHEDULER_ID).terminate("an accident")
    for kind, name in (("ModelDeployment", "qwen"), ("ModelReplica", replica)):
        await plane.handle(kind, name, namespace).terminate("an accident")
    await plane.handle("InferenceCluster", CLUSTER).terminate("an accident")
    await plane.apply(here("qwen", namespace))
    await plane.delete("ModelDeployment", "qwen", namespace)
    await plane.gone("ModelDeployment", "qwen", namespace)
    assert plane.our_objects(CLUSTER, namespace) == []
