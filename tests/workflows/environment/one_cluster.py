"""Helpers for fault tests on one cluster.

Deployments that can run only there, and the contents of the ledger and the cluster.
"""

import uuid
from typing import Any

from activities.secrets.store import SecretStore, StoredSecret
from api_types import labels
from testbed.manifests import secret_name
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_deployment,
    condition,
    eventually,
    message,
    reason,
)

CLUSTER = "prod-eu"
HOLD = "example.com/hold"


def a_tenant() -> str:
    """Return a new namespace for one scenario."""
    return f"t-{uuid.uuid4().hex[:8]}"


def here(name: str, namespace: str, **more: Any) -> Json:
    """Return a deployment that can run only on this cluster."""
    return a_deployment(
        name,
        namespace,
        clusterSelector={"matchLabels": {"modelplane.ai/region": "eu-west"}},
        **more,
    )


async def put_kubeconfig(store: SecretStore, content: bytes) -> None:
    """Write the cluster's kubeconfig, like an operator who rotates it."""
    await store.put(
        StoredSecret(
            labels.SYSTEM_NAMESPACE, secret_name(CLUSTER), {"kubeconfig": content}
        )
    )


def ready_count(seen: Json) -> int:
    """Return how many replicas of a deployment are ready."""
    return int(seen.get("status", {}).get("replicas", {}).get("ready", 0))


async def the_replica(plane: ControlPlane, name: str, namespace: str) -> str:
    """Return the name of a deployment's only replica."""
    seen = await plane.describe("ModelDeployment", name, namespace)
    (placement,) = seen["status"]["placements"]
    replica: str = placement["replica"]
    return replica


def workload(plane: ControlPlane, namespace: str) -> str:
    """Return the path of the only engine of a namespace."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    (item,) = plane.get(CLUSTER, path)["items"]
    return f"{path}/{item['metadata']['name']}"


def set_finalizers(plane: ControlPlane, path: str, *finalizers: str) -> None:
    """Set an object's finalizers, or remove all of them."""
    plane.call(
        CLUSTER,
        "PATCH",
        path,
        {"metadata": {"finalizers": list(finalizers) or None}},
        "application/merge-patch+json",
    )


def waits_at_step(seen: Json, number: int) -> bool:
    """Return whether a teardown waits at a step."""
    steps = seen.get("status", {}).get("teardown", {}).get("steps", ())
    return any((step["number"], step["state"]) == (number, "waiting") for step in steps)


async def images(plane: ControlPlane, namespace: str) -> list[str]:
    """Return the images of the pods that are not being deleted, sorted."""
    pods = [
        pod
        for pod in plane.pods(CLUSTER, namespace)
        if not pod["metadata"].get("deletionTimestamp")
    ]
    return sorted(pod["spec"]["containers"][0]["image"] for pod in pods)


async def held(plane: ControlPlane, namespace: str) -> list[Json]:
    """Return the ledger entries of a tenant."""
    return [
        entry
        for entry in await plane.scheduler("ledger")
        if entry["namespace"] == namespace
    ]


async def nothing_is_left(plane: ControlPlane, namespace: str) -> None:
    """Wait until neither the cluster nor the ledger has anything of the namespace."""
    assert plane.our_objects(CLUSTER, namespace) == []
    await eventually(
        lambda: held(plane, namespace),
        lambda entries: entries == [],
        what="the ledger's release of every node",
    )
    assert await plane.scheduler("audit") == []


async def clean_up(plane: ControlPlane, name: str, namespace: str) -> None:
    """Delete a deployment and wait until nothing of it is left."""
    await plane.delete("ModelDeployment", name, namespace)
    await plane.gone("ModelDeployment", name, namespace)
    await nothing_is_left(plane, namespace)


async def says_unreachable(
    plane: ControlPlane, namespace: str, rolling: str, leaving: str
) -> None:
    """Wait until a rollout and a teardown report that their API server is unreachable."""
    stuck = await plane.until(
        "ModelReplica",
        rolling,
        lambda seen: reason(seen, "ModelAccepted") == "ClusterUnreachable",
        namespace,
    )
    assert f"cluster {CLUSTER}: no response from https://127.0.0.1" in message(
        stuck, "ModelAccepted"
    )
    blocked = await plane.until(
        "ModelReplica",
        leaving,
        lambda seen: reason(seen, "Deleting") == "ClusterUnreachable",
        namespace,
    )
    assert blocked["status"]["phase"] == "Unreachable"
    assert "retrying" in message(blocked, "Deleting")
    whole = await plane.until(
        "ModelDeployment",
        "leaving",
        lambda seen: "no response from" in message(seen, "Deleting"),
        namespace,
    )
    assert f"{leaving} on {CLUSTER}" in message(whole, "Deleting")
    assert {entry["deployment"] for entry in await held(plane, namespace)} == {
        "rolling",
        "leaving",
    }


async def went_on(plane: ControlPlane, namespace: str, image: str) -> None:
    """Wait until the rollout and the teardown complete after the outage."""
    await plane.gone("ModelDeployment", "leaving", namespace)

    async def running() -> list[str]:
        return await images(plane, namespace)

    await eventually(running, lambda found: found == [image], what="the rollout")
    seen = await plane.ready("ModelDeployment", "rolling", namespace)
    assert condition(seen, "Ready") == "True"
    # The scheduler may process the release of a replica after its deployment has seen
    # it gone.
    await eventually(
        lambda: held(plane, namespace),
        lambda entries: [entry["deployment"] for entry in entries] == ["rolling"],
        what="the ledger's release of the deleted deployment",
    )
