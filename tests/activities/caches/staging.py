"""A cache that is staged on a real cluster: orders, activities, and objects."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from temporalio.testing import ActivityEnvironment

from activities.caches.activities import CacheActivities
from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
)
from activities.render.inputs.settings import RenderSettings
from api_types import names
from api_types.messages.caches import (
    ApplyCache,
    AwaitCredential,
    CacheApplied,
    CacheObjectsDeleted,
    DeleteCacheObjects,
)
from tests.activities.environment.cluster_under_test import ClusterUnderTest, eventually

SHARED = "testbed-rwx"
TOKEN = "hf_" + "verysecret"


@dataclass
class EndedRuns:
    """A Temporal namespace with ended runs of one workflow.

    The answers to the query `account` are given by run id.
    """

    answers: dict[str, Any]
    queries: list[str] = field(default_factory=list)
    workflow_id: str = "modelcache/ml/qwen"

    async def list_workflows(self, query: str, **_: Any) -> AsyncIterator[Any]:
        """Yield the runs."""
        self.queries.append(query)
        for run_id in self.answers:
            yield SimpleNamespace(id=self.workflow_id, run_id=run_id)

    def get_workflow_handle(self, workflow_id: str, *, run_id: str) -> Any:
        """Return a handle whose query answers or raises like the run."""
        assert workflow_id == self.workflow_id

        async def query(name: str, **_: Any) -> Any:
            assert name == "account"
            if isinstance(answer := self.answers[run_id], Exception):
                raise answer
            return answer

        return SimpleNamespace(query=query)


def activities_on(cluster: ClusterUnderTest) -> CacheActivities:
    return CacheActivities(cluster.pool, cluster.store, RenderSettings())


def an_order(
    cluster: ClusterUnderTest, size: int = 20, *, hub_key: str = "", **fields: Any
) -> ApplyCache:
    """A cache of 20 GiB in a namespace of its own, to be filled."""
    block = {
        "repo": "acme/tiny",
        "sizeGiB": size,
        **({"authSecret": {"name": hub_key}} if hub_key else {}),
    }
    plain = {
        "connection": cluster.connection,
        "cluster": cluster.name,
        "namespace": f"team-{secrets.token_hex(4)}",
        "name": "qwen",
        "uid": f"uid-{secrets.token_hex(4)}",
        "generation": 1,
        "spec": {"source": "HuggingFace", "huggingFace": block},
        "revision": "c" * 40,
        "storage_class_name": SHARED,
    }
    return ApplyCache(**{**plain, **fields})


def resized(order: ApplyCache, size: int) -> ApplyCache:
    block = {**order.spec["huggingFace"], "sizeGiB": size}
    return order.model_copy(
        update={
            "spec": {**order.spec, "huggingFace": block},
            "generation": 2,
            "hydrate": False,
        }
    )


def environment(
    cluster: ClusterUnderTest, order: ApplyCache | AwaitCredential
) -> ActivityEnvironment:
    name = order.name if isinstance(order, ApplyCache) else "qwen"
    return cluster.environment_of(
        names.workflow_id("ModelCache", order.namespace, name)
    )


async def apply(cluster: ClusterUnderTest, order: ApplyCache) -> CacheApplied:
    return await environment(cluster, order).run(
        activities_on(cluster).apply_cache, order
    )


async def remove(
    cluster: ClusterUnderTest, order: ApplyCache, applied: CacheApplied, *steps: int
) -> list[str]:
    return (await removed(cluster, order, applied, *steps)).skipped


async def removed(
    cluster: ClusterUnderTest,
    order: ApplyCache,
    applied: CacheApplied,
    *steps: int,
    search: bool = False,
) -> CacheObjectsDeleted:
    departure = DeleteCacheObjects(
        connection=order.connection,
        cluster=order.cluster,
        namespace=order.namespace,
        uid=order.uid,
        claim=applied.claim,
        steps=list(steps or (1, 2, 3)),
        search=search,
    )
    return await environment(cluster, order).run(
        activities_on(cluster).delete_cache_objects, departure
    )


async def live(
    cluster: ClusterUnderTest,
    order: ApplyCache,
    applied: CacheApplied,
    kind: GroupVersionKind,
) -> Json | None:
    suffix = {kinds.JOB: "-hyd", kinds.SECRET: "-auth", kinds.VOLUME_CLAIM: ""}[kind]
    return await (await cluster.api()).get(
        ObjectId(kind, order.namespace, applied.claim + suffix)
    )


async def bound(
    cluster: ClusterUnderTest, order: ApplyCache, applied: CacheApplied
) -> Json:
    async def look() -> Json | None:
        found = await live(cluster, order, applied, kinds.VOLUME_CLAIM)
        # A claim that was just created has no status.
        phase = (found.get("status") or {}).get("phase") if found else None
        return found if phase == "Bound" else None

    found: Json = await eventually(look)
    return found


async def is_gone(api: ClusterApi, target: ObjectId) -> bool:
    return await api.get(target) is None


def awaited(cluster: ClusterUnderTest, target: ObjectId) -> bool:
    """Return whether a heartbeat reported that an object is awaited."""
    named = f"{target.kind.kind} {target.namespace}/{target.name}"
    return any(
        found.startswith(named)
        for beat in cluster.heartbeats
        for detail in beat
        for found in detail.get("waitingFor", ())
    )


@asynccontextmanager
async def a_storage_class(
    cluster: ClusterUnderTest, name: str
) -> AsyncIterator[ObjectId]:
    """Create a class whose volumes are never provisioned, until it is deleted."""
    api = await cluster.api()
    manifest = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "test/none",
    }
    await api.create(manifest)
    target = ObjectId(kinds.STORAGE_CLASS, "", name)
    yield target
    await api.delete(target, propagation="Background")
