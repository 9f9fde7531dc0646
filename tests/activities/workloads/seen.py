"""Requests, testbed marks, and lists of pods and claims for replica tests."""

from activities.cluster_objects.cluster_api import GroupVersionKind, Json, Selection
from tests.activities.environment.cluster_under_test import ClusterUnderTest

ONE = [{"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1}]
LONG = "a-deployment-with-a-long-name-1a2b3c4d"
HOLD = "test.example/hold"
SLOW = {"testbed.modelplane.ai/delete-after": "3s"}
# Later than every wait here ends.
NEVER = "24h"


async def pods(cluster: ClusterUnderTest, namespace: str) -> list[Json]:
    return (
        await (await cluster.api()).list(
            Selection(GroupVersionKind("v1", "Pod"), namespace)
        )
    ).items


async def claims(cluster: ClusterUnderTest, namespace: str) -> list[Json]:
    return (
        await (await cluster.api()).list(
            Selection(
                GroupVersionKind("resource.k8s.io/v1", "ResourceClaim"), namespace
            )
        )
    ).items


async def are_ready(cluster: ClusterUnderTest, namespace: str, count: int) -> bool:
    """Return whether this number of pods is Ready."""
    conditions = [
        pod["status"].get("conditions", []) for pod in await pods(cluster, namespace)
    ]
    ready = [
        True
        for told in conditions
        for found in told
        if (found["type"], found["status"]) == ("Ready", "True")
    ]
    return len(ready) == count
