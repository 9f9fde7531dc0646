"""Run a worker against clusters that have no objects and never change.

`python -m tests.environment.idle_clusters` runs the worker with all of its parts except
the Kubernetes client, and with short heartbeats. Each request takes
`IDLE_CLUSTERS_SECONDS`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import worker
from activities import heartbeat
from activities.cluster_objects.cluster_api import (
    ApiResource,
    ClusterApi,
    ClusterPool,
    Event,
    GroupVersionKind,
    Json,
    Keep,
    ObjectId,
    ObjectList,
    Propagation,
    Selection,
    whole,
)
from activities.clusters import activities
from api_types.messages.cluster_work import Connection

SECONDS_VARIABLE = "IDLE_CLUSTERS_SECONDS"
HEARTBEAT_SECONDS = 1.0
_VERBS = frozenset({"list", "watch", "get", "create", "patch", "delete"})
_KINDS = {
    GroupVersionKind("v1", "Node"): "nodes",
    GroupVersionKind("v1", "Pod"): "pods",
    GroupVersionKind("apps/v1", "Deployment"): "deployments",
}


class IdleCluster(ClusterApi):
    """A cluster without objects. It allows every request and stores nothing."""

    @asynccontextmanager
    async def applying(self) -> AsyncIterator[None]:
        yield

    async def version(self) -> str:
        await _answer()
        return "v1.35.0"

    async def resources(
        self, *, refresh: bool = False
    ) -> Mapping[GroupVersionKind, ApiResource]:
        del refresh
        return {
            kind: ApiResource(kind, plural, namespaced=plural != "nodes", verbs=_VERBS)
            for kind, plural in _KINDS.items()
        }

    async def get(self, target: ObjectId) -> Json | None:
        del target
        await _answer()
        return None

    async def list(self, selection: Selection, keep: Keep = whole) -> ObjectList:
        del selection, keep
        await _answer()
        return ObjectList([], "1")

    async def watch(
        self, selection: Selection, resource_version: str
    ) -> AsyncIterator[Event]:
        del selection, resource_version
        await asyncio.Event().wait()
        yield Event("BOOKMARK", {})

    async def apply(self, manifest: Json, *, dry_run: bool = False) -> Json:
        del dry_run
        await _answer()
        return manifest

    async def create(self, manifest: Json) -> Json | None:
        await _answer()
        return {**manifest, "status": {"allowed": True}}

    async def replace(self, manifest: Json) -> Json | None:
        await _answer()
        return manifest

    async def proxied_status(
        self, service: ObjectId, port: int, path: str
    ) -> int | None:
        del service, port, path
        return None

    async def delete(
        self,
        target: ObjectId,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Foreground",
        grace_seconds: int | None = None,
    ) -> bool:
        del target, uid, resource_version, propagation, grace_seconds
        await _answer()
        return False


class IdlePool(ClusterPool):
    """Replaces `KubernetesPool`: returns the same idle cluster for every connection."""

    def __init__(self, *_: object) -> None:
        self._cluster = IdleCluster()

    async def at(self, connection: Connection) -> ClusterApi:
        del connection
        return self._cluster

    async def close(self) -> None:
        pass


async def _answer() -> None:
    await asyncio.sleep(float(os.environ.get(SECONDS_VARIABLE, "0")))


if __name__ == "__main__":
    vars(worker)["KubernetesPool"] = IdlePool
    vars(heartbeat)["_SECONDS"] = vars(activities)["_HEARTBEAT_SECONDS"] = (
        HEARTBEAT_SECONDS
    )
    worker.main()
