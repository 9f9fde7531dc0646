"""One manifest to running pods, and back to nothing, on two real API servers."""

from typing import Any

import pytest

from api_types import labels, names
from tests.environment.waiting import SHORTEST_PAUSE_SECONDS
from tests.workflows.environment.harness import ControlPlane, Json, a_deployment, condition, eventually, message, reason

pytestmark = pytest.mark.testbed


def placements(seen: Json) -> list[Json]:
    found: list[Json] = seen.get("status", {}).get("placements", [])
    return found


def without_times(entry: Json) -> Json:
    return {field: value for field, value in entry.items() if field not in ("since", "ready", "serving")}


async def clean_up(plane: ControlPlane, name: str, namespace: str) -> None:
    await plane.delete("ModelDeployment", name, namespace)
    await plane.gone("ModelDeployment", name, namespace)
    for cluster in plane.running.clusters:
        assert plane.our_objects(cluster, namespace) == []


async def test_two_replicas_become_ready_on_two_clusters_and_leave_nothing_behind(plane: ControlPlane, namespace: str) -> None:
    await plane.apply(a_deployment("qwen", namespace, replicas=2, gpus=2))
    seen = await plane.ready("ModelDeployment", "qwen", namespace)
    assert sorted(placement["cluster"] for placement in placements(seen)) == sorted(plane.running.clusters)
    assert seen["status"]["replicas"] == {"total": 2, "ready": 2}
    for placement in placements(seen):
        replica = await plane.describe("ModelReplica", placement["replica"], namespace)
        pool = replica["spec"]["engines"][0]["members"][0]["nodePoolName"]
        (pod,) = plane.pods(placement["cluster"], namespace)
        node = plane.get(placement["cluster"], f"/api/v1/nodes/{pod['spec']['nodeName']}")
        assert node["metadata"]["labels"][labels.POOL] == pool
        assert pod["status"]["phase"] == "Running"
        (claim,) = plane.get(placement["cluster"], f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]
        assert len(claim["status"]["allocation"]["devices"]["results"]) == 2
        gateway = plane.running.clusters[placement["cluster"]].gateway_address
        assert placement["endpoint"] == f"http://{gateway}/{namespace}/{placement['replica']}/v1"
    await clean_up(plane, "qwen", namespace)


async def test_more_gpus_than_any_node_has_are_refused_with_reasons_before_anything_is_applied(plane: ControlPlane, namespace: str) -> None:
    await plane.apply(a_deployment("giant", namespace, gpus=64))
    seen = await plane.until(
        "ModelDeployment", "giant", lambda seen: reason(seen, "ReplicasScheduled") == "InsufficientCapacity", namespace
    )
    clusters = len(plane.running.clusters)
    assert message(seen, "ReplicasScheduled").startswith(f"0 of 1 replicas scheduled (checked {clusters} clusters)")
    assert f"0/{clusters} clusters are available: {clusters} had no pool for engine main" in message(seen, "ReplicasScheduled")
    for cluster in plane.running.clusters:
        assert plane.our_objects(cluster, namespace) == []
    await clean_up(plane, "giant", namespace)


async def test_a_scale_signal_adds_and_removes_whole_replicas_down_to_none(plane: ControlPlane, namespace: str) -> None:
    await plane.apply(a_deployment("elastic", namespace, replicas=1))
    before = await plane.ready("ModelDeployment", "elastic", namespace)
    await plane.scale("elastic", namespace, 3)
    grown = await plane.until("ModelDeployment", "elastic", lambda seen: seen["status"]["replicas"]["ready"] == 3, namespace)
    assert {placement["replica"] for placement in placements(before)} <= {placement["replica"] for placement in placements(grown)}
    assert grown["status"]["lastScale"]["replicas"] == 3
    await plane.scale("elastic", namespace, 0)
    await plane.until("ModelDeployment", "elastic", lambda seen: not placements(seen), namespace)
    empty = await plane.describe("ModelDeployment", "elastic", namespace)
    assert (reason(empty, "Ready"), reason(empty, "ReplicasScheduled")) == ("ScaledToZero", "ScaledToZero")
    for cluster in plane.running.clusters:
        assert plane.our_objects(cluster, namespace) == []
    await clean_up(plane, "elastic", namespace)


async def test_applying_the_same_manifest_again_does_not_undo_a_scale(plane: ControlPlane, namespace: str) -> None:
    document = a_deployment("kept", namespace, replicas=1)
    await plane.apply(document)
    await plane.ready("ModelDeployment", "kept", namespace)
    await plane.scale("kept", namespace, 2)
    await plane.until("ModelDeployment", "kept", lambda seen: seen["spec"]["replicas"] == 2, namespace)
    request = await plane.apply(document)
    seen = await plane.until("ModelDeployment", "kept", lambda seen: request in seen["appliedRequestIds"], namespace)
    assert (seen["spec"]["replicas"], seen["metadata"]["generation"]) == (2, 2)
    await clean_up(plane, "kept", namespace)


@pytest.mark.parametrize("change", ["deleted", "modified"])
async def test_wkl_105_an_object_that_is_changed_by_hand_is_repaired_within_30_s(plane: ControlPlane, namespace: str, change: str) -> None:
    await plane.apply(a_deployment("steady", namespace))
    seen = await plane.ready("ModelDeployment", "steady", namespace)
    (placement,) = placements(seen)
    cluster, path = placement["cluster"], f"/apis/apps/v1/namespaces/{namespace}/deployments"
    (workload,) = plane.get(cluster, path)["items"]
    name = workload["metadata"]["name"]
    if change == "deleted":
        plane.call(cluster, "DELETE", f"{path}/{name}", {"propagationPolicy": "Background"})
    else:
        plane.call(cluster, "PATCH", f"{path}/{name}", {"spec": {"replicas": 3}}, "application/merge-patch+json")

    async def replicas_there() -> Any:
        found = plane.get(cluster, f"{path}/{name}")
        return found and found["spec"]["replicas"]

    await eventually(replicas_there, lambda replicas: replicas == 1, within=30)
    await plane.ready("ModelDeployment", "steady", namespace)
    replica = await plane.describe("ModelReplica", placement["replica"], namespace)
    events = {event["reason"]: event["message"] for event in replica["status"]["events"]}
    drift = f"Deployment/{name} {'is missing' if change == 'deleted' else 'was modified'}"
    assert drift in events["DriftDetected"]
    assert drift in events["DriftRepaired"]
    assert (f"Deployment/{name}: spec.replicas by " in events["DriftRepaired"]) == (change == "modified")
    await clean_up(plane, "steady", namespace)


async def test_a_new_image_reaches_one_replica_after_the_other(plane: ControlPlane, namespace: str) -> None:
    await plane.apply(a_deployment("rolled", namespace, replicas=3))
    before = await plane.ready("ModelDeployment", "rolled", namespace)
    await plane.apply(a_deployment("rolled", namespace, replicas=3, image="example/engine:2"))
    fewest = 3

    def rolled(seen: Json) -> bool:
        nonlocal fewest
        fewest = min(fewest, seen["status"]["replicas"]["ready"])
        return condition(seen, "Ready") == "True" and seen["status"]["observedGeneration"] == 2

    after = await eventually(
        lambda: plane.describe("ModelDeployment", "rolled", namespace), rolled, longest_pause=SHORTEST_PAUSE_SECONDS, what="the rollout"
    )
    assert fewest == 2
    assert {placement["replica"] for placement in placements(after)} == {placement["replica"] for placement in placements(before)}
    images = {
        container["image"]
        for cluster in plane.running.clusters
        for pod in plane.pods(cluster, namespace)
        for container in pod["spec"]["containers"]
    }
    assert images == {"example/engine:2"}
    await clean_up(plane, "rolled", namespace)


async def test_a_scheduler_that_lost_its_state_places_nothing_twice(plane: ControlPlane, namespace: str) -> None:
    await plane.apply(a_deployment("safe", namespace, replicas=3))
    before = await plane.ready("ModelDeployment", "safe", namespace)
    ledger = await plane.scheduler("ledger")
    await plane.client.get_workflow_handle(names.FLEET_SCHEDULER_ID).terminate("the test deletes its state")
    await plane.apply(a_deployment("later", namespace, replicas=1))
    await plane.ready("ModelDeployment", "later", namespace)
    after = await plane.describe("ModelDeployment", "safe", namespace)
    assert placements(after) == placements(before)
    known = {entry["uid"]: entry for entry in await plane.scheduler("ledger")}
    for entry in ledger:
        if entry["namespace"] == namespace:
            assert without_times(known[entry["uid"]]) == without_times(entry)
    assert await plane.scheduler("audit") == []
    await plane.delete("ModelDeployment", "later", namespace)
    await plane.gone("ModelDeployment", "later", namespace)
    await clean_up(plane, "safe", namespace)


async def test_a_deployment_that_was_terminated_takes_its_replicas_back(plane: ControlPlane, namespace: str) -> None:
    document = a_deployment("adopting", namespace, replicas=2)
    await plane.apply(document)
    before = await plane.ready("ModelDeployment", "adopting", namespace)
    uids = {p["replica"]: (await plane.describe("ModelReplica", p["replica"], namespace))["metadata"]["uid"] for p in placements(before)}
    await plane.handle("ModelDeployment", "adopting", namespace).terminate("an accident")
    await plane.apply(document)
    after = await plane.ready("ModelDeployment", "adopting", namespace)
    kept = {p["replica"]: (await plane.describe("ModelReplica", p["replica"], namespace))["metadata"]["uid"] for p in placements(after)}
    assert kept == uids
    await clean_up(plane, "adopting", namespace)


async def test_two_namespaces_with_equal_names_do_not_touch_each_other(plane: ControlPlane, namespace: str) -> None:
    other = f"{namespace}-other"
    for tenant in (namespace, other):
        await plane.apply(a_deployment("same", tenant))
    for tenant in (namespace, other):
        await plane.ready("ModelDeployment", "same", tenant)
    await clean_up(plane, "same", namespace)
    still = await plane.describe("ModelDeployment", "same", other)
    assert condition(still, "Ready") == "True"
    await clean_up(plane, "same", other)


async def test_a_no_execute_taint_moves_replicas_to_another_cluster(plane: ControlPlane, namespace: str) -> None:
    await plane.apply(a_deployment("moved", namespace, replicas=1))
    before = await plane.ready("ModelDeployment", "moved", namespace)
    cluster = placements(before)[0]["cluster"]
    manifest = await plane.describe("InferenceCluster", cluster)
    kept = {key: manifest["metadata"][key] for key in ("name", "labels", "annotations")}
    document = {"apiVersion": manifest["apiVersion"], "kind": "InferenceCluster", "metadata": kept, "spec": manifest["spec"]}
    taints = [{"key": labels.MAINTENANCE, "effect": "NoExecute"}]
    await plane.apply({**document, "spec": {**manifest["spec"], "taints": taints}})
    await plane.until(
        "ModelDeployment",
        "moved",
        lambda seen: [p["cluster"] for p in placements(seen) if p["ready"]] not in ([], [cluster]) and len(placements(seen)) == 1,
        namespace,
    )
    assert plane.our_objects(cluster, namespace) == []
    await plane.apply(document)
    await clean_up(plane, "moved", namespace)
