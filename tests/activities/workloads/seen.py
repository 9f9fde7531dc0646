"""The pods and claims of a replica's namespace."""

from activities.cluster_objects.cluster_api import Json, Kind, Selection
from tests.activities.environment.cluster_under_test import ClusterUnderTest


async def pods(cluster: ClusterUnderTest, namespace: str) -> list[Json]:
    return (await (await cluster.api()).list(Selection(Kind("v1", "Pod"), namespace))).items


async def claims(cluster: ClusterUnderTest, namespace: str) -> list[Json]:
    return (await (await cluster.api()).list(Selection(Kind("resource.k8s.io/v1", "ResourceClaim"), namespace))).items


async def are_ready(cluster: ClusterUnderTest, namespace: str, count: int) -> bool:
    """Whether so many pods are Ready."""
    conditions = [pod["status"].get("conditions", []) for pod in await pods(cluster, namespace)]
    ready = [True for told in conditions for found in told if (found["type"], found["status"]) == ("Ready", "True")]
    return len(ready) == count
