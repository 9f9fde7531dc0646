"""A cluster is upgraded under its replicas: its API server serves other versions of a group."""

import asyncio
from functools import partial

import pytest

from testbed.process.processes import ProcessFiles
from testbed.testbed import Testbed
from tests.workflows.environment.harness import ControlPlane, Json, condition
from tests.workflows.environment.one_cluster import CLUSTER, nothing_is_left
from tests.workflows.environment.topologies import (
    L40S,
    a_gang,
    a_model,
    an_engine,
    connection_of,
    the_replica,
)

pytestmark = pytest.mark.testbed

SERVER = f"{CLUSTER}.kube-apiserver"
# The served versions are read each minute.
FOUND_SECONDS = 150.0
# Longer than drift persists before it is repaired.
SETTLED_SECONDS = 15.0


async def serving_v1(owner: Testbed, plane: ControlPlane, *, served: bool) -> None:
    """Restart the API server with or without v1 of DRA's group.

    The older versions stay.
    """
    spec = ProcessFiles(plane.running.home).specs()[SERVER]
    older, added = "resource.k8s.io/v1beta2=true", ",resource.k8s.io/v1=false"
    argv = [each.replace(added, "") for each in spec.argv]
    if not served:
        argv = [each.replace(older, older + added) for each in argv]
    await asyncio.to_thread(owner.stop_process, SERVER)
    await asyncio.to_thread(owner.start_process, SERVER, argv, dict(spec.environment))


def templates(plane: ControlPlane, namespace: str) -> dict[str, str]:
    """Return the claim templates by name, with their uid."""
    items = plane.get(
        CLUSTER,
        f"/apis/resource.k8s.io/v1beta2/namespaces/{namespace}/resourceclaimtemplates",
    )["items"]
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}


def pods(plane: ControlPlane, namespace: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in plane.pods(CLUSTER, namespace)}


def _is_from(inputs: str, replica: Json, *, same: bool) -> bool:
    return bool((replica["status"]["inputsHash"] == inputs) is same)


def drifts(replica: Json) -> int:
    return sum(
        event["count"]
        for event in replica["status"]["events"]
        if event["reason"] == "DriftDetected"
    )


@pytest.mark.long
async def test_replicas_outlive_a_change_of_the_served_versions_of_dra(
    plane: ControlPlane, namespace: str, testbed_owner: Testbed
) -> None:
    for name, engine in (
        ("single", an_engine("main", L40S)),
        ("group", a_gang(L40S, nodes=1)),
    ):
        await plane.apply(a_model(name, namespace, engine))
    living = [
        await the_replica(plane, each, namespace)
        for each in ("single", "group")
        if await plane.ready("ModelDeployment", each, namespace)
    ]
    before = (templates(plane, namespace), pods(plane, namespace))
    assert (await connection_of(plane))["facts"]["draVersion"] == "v1"
    serves_v1 = True
    try:
        for served, version in ((False, "v1beta2"), (True, "v1")):
            serves_v1 = served
            await serving_v1(testbed_owner, plane, served=served)
            for replica in living:
                name, rendered_again = (
                    replica["metadata"]["name"],
                    partial(_is_from, replica["status"]["inputsHash"], same=served),
                )
                await plane.until(
                    "ModelReplica", name, rendered_again, namespace, FOUND_SECONDS
                )
                seen = await plane.ready("ModelReplica", name, namespace)
                assert "pending" not in seen["status"]
            assert (await connection_of(plane))["facts"]["draVersion"] == version
            assert (templates(plane, namespace), pods(plane, namespace)) == before
    finally:
        if not serves_v1:
            await serving_v1(testbed_owner, plane, served=True)
    # Objects in another version are no drift, and none was missing while they were
    # listed in it.
    await asyncio.sleep(SETTLED_SECONDS)
    later = [
        await plane.describe("ModelReplica", replica["metadata"]["name"], namespace)
        for replica in living
    ]
    assert {condition(each, "Ready") for each in later} == {"True"}
    assert list(map(drifts, later)) == list(map(drifts, living))
    assert (templates(plane, namespace), pods(plane, namespace)) == before
    for name in ("single", "group"):
        await plane.delete("ModelDeployment", name, namespace)
        await plane.gone("ModelDeployment", name, namespace)
    await nothing_is_left(plane, namespace)
