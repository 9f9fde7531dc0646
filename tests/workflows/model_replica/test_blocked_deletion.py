"""Objects and namespaces whose deletion a finalizer blocks, on a real API server with
its garbage collector.

Orders that skip them, and deletions that they do not delay, are in
tests/simulation/lives/test_replicas.py, in virtual time.
"""

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata

from tests.workflows.environment.harness import ControlPlane, condition, message, reason
from tests.workflows.environment.one_cluster import (
    CLUSTER,
    HOLD,
    clean_up,
    held,
    here,
    images,
    nothing_is_left,
    set_finalizers,
    the_replica,
    workload,
)

pytestmark = pytest.mark.testbed


async def a_held_deletion(
    plane: ControlPlane, name: str, namespace: str
) -> tuple[str, str]:
    """Delete a deployment whose engine has a finalizer that is never removed.

    Return its replica and the path of the engine.
    """
    await plane.apply(here(name, namespace))
    await plane.ready("ModelDeployment", name, namespace)
    replica, path = (
        await the_replica(plane, name, namespace),
        workload(plane, namespace),
    )
    set_finalizers(plane, path, HOLD)
    await plane.delete("ModelDeployment", name, namespace)
    return replica, path


async def test_foreground_deletion_names_a_remaining_finalizer_and_keeps_the_nodes(
    plane: ControlPlane, namespace: str
) -> None:
    name, path = await a_held_deletion(plane, "sticky", namespace)
    seen = await plane.until(
        "ModelReplica",
        name,
        lambda seen: f"finalizer {HOLD}" in message(seen, "Deleting"),
        namespace,
    )
    assert (
        f"waiting for deletion of Deployment {namespace}/{path.rpartition('/')[2]}"
        in message(seen, "Deleting")
    )
    done = [
        step["number"]
        for step in seen["status"]["teardown"]["steps"]
        if step["state"] in ("done", "not needed")
    ]
    assert done == [1, 2, 3, 4, 5, 6]
    shown = await plane.handle("ModelReplica", name, namespace).query(
        "__temporal_workflow_metadata", result_type=WorkflowMetadata
    )
    assert "| 7 | delete the engines | waiting | Deployment" in shown.current_details
    whole = await plane.until(
        "ModelDeployment",
        "sticky",
        lambda seen: HOLD in message(seen, "Deleting"),
        namespace,
    )
    assert reason(whole, "Deleting") == "WaitingForReplicas"
    assert len(await held(plane, namespace)) == 1
    set_finalizers(plane, path)
    await plane.gone("ModelDeployment", "sticky", namespace)
    await nothing_is_left(plane, namespace)


async def test_a_namespace_deleted_under_a_replica_is_created_again_once_the_server_has_removed_it(
    plane: ControlPlane, namespace: str
) -> None:
    await plane.apply(here("homeless", namespace))
    await plane.ready("ModelDeployment", "homeless", namespace)
    name = await the_replica(plane, "homeless", namespace)
    hold_namespace(plane, namespace)
    plane.call(CLUSTER, "DELETE", f"/api/v1/namespaces/{namespace}")
    seen = await plane.until(
        "ModelReplica",
        name,
        lambda seen: "the namespace is being deleted" in message(seen, "ModelAccepted"),
        namespace,
    )
    assert condition(seen, "Ready") == "False"
    assert len(await held(plane, namespace)) == 1
    release_namespace(plane, namespace)
    await plane.until(
        "ModelReplica", name, lambda seen: condition(seen, "Ready") == "True", namespace
    )
    assert await images(plane, namespace) == ["registry.example/engine:1"]
    await clean_up(plane, "homeless", namespace)


def hold_namespace(plane: ControlPlane, namespace: str) -> None:
    """Create an object of another owner, whose deletion is blocked, in a namespace."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "foreign", "finalizers": [HOLD]},
    }
    plane.call(CLUSTER, "POST", f"/api/v1/namespaces/{namespace}/configmaps", body)


def release_namespace(plane: ControlPlane, namespace: str) -> None:
    set_finalizers(plane, f"/api/v1/namespaces/{namespace}/configmaps/foreign")
