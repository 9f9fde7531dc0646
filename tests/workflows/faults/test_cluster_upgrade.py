"""A cluster is upgraded under its replicas: its API server serves other versions of a group."""

import asyncio

import pytest

from testbed.process.processes import ProcessFiles
from testbed.testbed import Testbed
from tests.workflows.environment.harness import ControlPlane, Json, condition
from tests.workflows.environment.one_cluster import CLUSTER, clean_up
from tests.workflows.environment.topologies import L40S, a_gang, a_model, an_engine, the_replica

pytestmark = pytest.mark.testbed

SERVER = f"{CLUSTER}.kube-apiserver"
# Looked for at once after a loss of contact, else each minute.
FOUND_SECONDS = 150.0


async def serving_v1(owner: Testbed, plane: ControlPlane, *, served: bool) -> None:
    """Restart the API server with or without v1 of DRA's group; the older versions stay."""
    spec = ProcessFiles(plane.running.home).specs()[SERVER]
    older, added = "resource.k8s.io/v1beta2=true", ",resource.k8s.io/v1=false"
    argv = [each.replace(added, "") for each in spec.argv]
    if not served:
        argv = [each.replace(older, older + added) for each in argv]
    await asyncio.to_thread(owner.stop_process, SERVER)
    await asyncio.to_thread(owner.start_process, SERVER, argv, dict(spec.environment))


def templates(plane: ControlPlane, namespace: str) -> dict[str, str]:
    """The claim templates by name, with their uid."""
    items = plane.get(CLUSTER, f"/apis/resource.k8s.io/v1beta2/namespaces/{namespace}/resourceclaimtemplates")["items"]
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}


def pods(plane: ControlPlane, namespace: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in plane.pods(CLUSTER, namespace)}


def dra_version(replica: Json) -> str:
    """The version in which a replica has applied its claim templates."""
    (found,) = {entry["id"].split("/")[1] for entry in replica["status"]["inventory"] if "ResourceClaimTemplate" in entry["id"]}
    return str(found)


def repairs(replica: Json) -> int:
    return sum(event["count"] for event in replica["status"]["events"] if event["reason"] == "DriftRepaired")


@pytest.mark.parametrize("engine", [an_engine("main", L40S), a_gang(L40S, nodes=1)], ids=["Deployment", "LeaderWorkerSet"])
async def test_replicas_outlive_a_change_of_the_served_versions_of_dra(
    plane: ControlPlane, namespace: str, testbed_owner: Testbed, engine: Json
) -> None:
    await plane.apply(a_model("living", namespace, engine))
    await plane.ready("ModelDeployment", "living", namespace)
    before = (templates(plane, namespace), pods(plane, namespace))
    replica = await the_replica(plane, "living", namespace)
    name = replica["metadata"]["name"]
    assert dra_version(replica) == "v1"
    try:
        for served, version in ((False, "v1beta2"), (True, "v1")):
            await serving_v1(testbed_owner, plane, served=served)
            await plane.until("ModelReplica", name, lambda seen, v=version: dra_version(seen) == v, namespace, FOUND_SECONDS)
            seen = await plane.ready("ModelReplica", name, namespace)
            assert (templates(plane, namespace), pods(plane, namespace)) == before
            assert "pending" not in seen["status"]
    finally:
        await serving_v1(testbed_owner, plane, served=True)
    # Nothing goes on after that: the same objects in another version are no drift.
    settled = await plane.describe("ModelReplica", name, namespace)
    await asyncio.sleep(15)
    later = await plane.describe("ModelReplica", name, namespace)
    assert (repairs(later), condition(later, "Ready")) == (repairs(settled), "True")
    assert (templates(plane, namespace), pods(plane, namespace)) == before
    await clean_up(plane, "living", namespace)
