"""Helpers that read and change caches on clusters."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from api_types import labels
from tests.workflows.environment.harness import ControlPlane, Json, eventually


def clusters_of(seen: Json) -> dict[str, Json]:
    return {row["name"]: row for row in seen["status"].get("clusters", ())}


def objects(plane: ControlPlane, cluster: str, namespace: str) -> list[str]:
    """Return the cache objects in a namespace of a cluster."""
    found = []
    for base, plural in (
        ("/api/v1", "persistentvolumeclaims"),
        ("/apis/batch/v1", "jobs"),
        ("/api/v1", "secrets"),
        ("/api/v1", "pods"),
    ):
        listed = plane.get(cluster, f"{base}/namespaces/{namespace}/{plural}") or {
            "items": []
        }
        found += [
            f"{plural}/{item['metadata']['name']}"
            for item in listed["items"]
            if labels.CACHE in (item["metadata"].get("labels") or {})
        ]
    return sorted(found)


async def clean_up(plane: ControlPlane, name: str, namespace: str) -> None:
    await plane.delete("ModelCache", name, namespace)
    await plane.gone("ModelCache", name, namespace)
    for cluster in plane.running.clusters:
        assert objects(plane, cluster, namespace) == []
        assert plane.our_objects(cluster, namespace) == []


async def now(read: Callable[[], Any]) -> Any:
    return read()


def engines(plane: ControlPlane, cluster: str, namespace: str) -> list[Json]:
    """Return the engine Deployments in a namespace of a cluster."""
    items: list[Json] = (
        plane.get(cluster, f"/apis/apps/v1/namespaces/{namespace}/deployments")
        or {"items": []}
    )["items"]
    return [item for item in items if labels.ENGINE in item["metadata"]["labels"]]


def mounted(workload: Json) -> list[str]:
    """Return the volume claims that an engine's pods mount."""
    volumes = workload["spec"]["template"]["spec"]["volumes"]
    return [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in volumes
        if "persistentVolumeClaim" in volume
    ]


@contextmanager
def no_room_for_jobs(plane: ControlPlane, cluster: str) -> Iterator[None]:
    """Keep pods without GPUs from being scheduled, so that a download does not complete."""
    nodes = [
        node
        for node in plane.get(cluster, "/api/v1/nodes")["items"]
        if not node["spec"].get("taints")
    ]
    assert nodes

    def cordon(*, on: bool) -> None:
        for node in nodes:
            path = f"/api/v1/nodes/{node['metadata']['name']}"
            plane.call(
                cluster,
                "PATCH",
                path,
                {"spec": {"unschedulable": on}},
                "application/merge-patch+json",
            )

    cordon(on=True)
    try:
        yield
    finally:
        cordon(on=False)


async def end_download(
    plane: ControlPlane, cluster: str, namespace: str, code: int, text: str
) -> None:
    """End the pod of the hydration Job with an exit code and a message."""

    def pods() -> list[Json]:
        listed = plane.get(
            cluster, f"/api/v1/namespaces/{namespace}/pods?labelSelector={labels.CACHE}"
        ) or {"items": []}
        return [pod for pod in listed["items"] if pod["status"]["phase"] == "Pending"]

    (pod,) = await eventually(
        lambda: now(pods), lambda found: len(found) == 1, what="the pod of the Job"
    )
    ended = {
        "exitCode": code,
        "reason": "Error" if code else "Completed",
        "message": text,
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:01Z",
    }
    container = {
        "name": "hydrate",
        "image": "x",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": ended},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/status"
    status = {
        "status": {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [container],
        }
    }
    plane.call(cluster, "PATCH", path, status, "application/strategic-merge-patch+json")


def in_cluster(plane: ControlPlane, cluster: str) -> dict[str, str]:
    """Return labels that select one cluster of the testbed."""
    return (
        {"modelplane.ai/region": {"prod-eu": "eu-west", "prod-us": "us-east"}[cluster]}
        if cluster in plane.running.clusters
        else {}
    )
