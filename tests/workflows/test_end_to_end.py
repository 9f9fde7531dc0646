"""One manifest to running pods, and back to nothing, on two real API servers.

The real scheduler binds the pods and allocates their devices, and the real server names
the manager of a field. The other lifecycles of deployments are in
tests/simulation/lives/test_deployments.py, in virtual time.
"""

from typing import Any

import pytest

from api_types import labels
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_deployment,
    eventually,
)

pytestmark = pytest.mark.testbed


def placements(seen: Json) -> list[Json]:
    found: list[Json] = seen.get("status", {}).get("placements", [])
    return found


async def clean_up(plane: ControlPlane, name: str, namespace: str) -> None:
    await plane.delete("ModelDeployment", name, namespace)
    await plane.gone("ModelDeployment", name, namespace)
    for cluster in plane.running.clusters:
        assert plane.our_objects(cluster, namespace) == []


async def test_two_replicas_become_ready_on_two_clusters_and_leave_nothing(
    plane: ControlPlane, namespace: str
) -> None:
    await plane.apply(a_deployment("qwen", namespace, replicas=2, gpus=2))
    seen = await plane.ready("ModelDeployment", "qwen", namespace)
    assert sorted(placement["cluster"] for placement in placements(seen)) == sorted(
        plane.running.clusters
    )
    assert seen["status"]["replicas"] == {"total": 2, "ready": 2}
    for placement in placements(seen):
        replica = await plane.describe("ModelReplica", placement["replica"], namespace)
        pool = replica["spec"]["engines"][0]["members"][0]["nodePoolName"]
        (pod,) = plane.pods(placement["cluster"], namespace)
        node = plane.get(
            placement["cluster"], f"/api/v1/nodes/{pod['spec']['nodeName']}"
        )
        assert node["metadata"]["labels"][labels.POOL] == pool
        assert pod["status"]["phase"] == "Running"
        (claim,) = plane.get(
            placement["cluster"],
            f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
        )["items"]
        assert len(claim["status"]["allocation"]["devices"]["results"]) == 2
        gateway = plane.running.clusters[placement["cluster"]].gateway_address
        assert (
            placement["endpoint"]
            == f"http://{gateway}/{namespace}/{placement['replica']}/v1"
        )
    await clean_up(plane, "qwen", namespace)


async def test_a_manual_change_is_reverted_within_30_s_and_the_field_manager_is_named(
    plane: ControlPlane, namespace: str
) -> None:
    await plane.apply(a_deployment("steady", namespace))
    seen = await plane.ready("ModelDeployment", "steady", namespace)
    (placement,) = placements(seen)
    cluster, path = (
        placement["cluster"],
        f"/apis/apps/v1/namespaces/{namespace}/deployments",
    )
    (workload,) = plane.get(cluster, path)["items"]
    name = workload["metadata"]["name"]
    plane.call(
        cluster,
        "PATCH",
        f"{path}/{name}",
        {"spec": {"replicas": 3}},
        "application/merge-patch+json",
    )

    async def replicas_there() -> Any:
        found = plane.get(cluster, f"{path}/{name}")
        return found and found["spec"]["replicas"]

    await eventually(replicas_there, lambda replicas: replicas == 1, within=30)
    await plane.ready("ModelDeployment", "steady", namespace)
    replica = await plane.describe("ModelReplica", placement["replica"], namespace)
    events = {
        event["reason"]: event["message"] for event in replica["status"]["events"]
    }
    drift = f"Deployment/{name} was modified"
    assert drift in events["DriftDetected"]
    assert drift in events["DriftRepaired"]
    assert f"Deployment/{name}: spec.replicas by " in events["DriftRepaired"]
    await clean_up(plane, "steady", namespace)
