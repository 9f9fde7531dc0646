"""Namespaces of what is applied: created on demand, and kept when it is deleted."""

from activities.cluster_objects.cluster_api import ClusterApi, ObjectId
from activities.cluster_objects.kinds import NAMESPACE
from api_types import labels


async def ensure_namespace(cluster: ClusterApi, namespace: str, created_for: str) -> None:
    """Create a namespace that does not exist. It outlives what it was created for, so it carries none of our labels."""
    if await cluster.get(ObjectId(NAMESPACE, "", namespace)) is None:
        metadata = {"name": namespace, "annotations": {labels.CREATED_FOR: created_for}}
        await cluster.create({"apiVersion": NAMESPACE.api_version, "kind": NAMESPACE.kind, "metadata": metadata})
