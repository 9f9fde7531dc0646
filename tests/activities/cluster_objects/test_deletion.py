"""A teardown deletes its own objects only, and pods without grace only after a limit.

The cluster is in memory.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from activities.caches.activities import CacheActivities
from activities.clients.secrets.directory import SecretDirectory
from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import GroupVersionKind, Json, ObjectId
from activities.cluster_objects.deletion import Deleter
from activities.cluster_objects.ownership import conflict, owner_of
from activities.render.inputs.settings import RenderSettings
from activities.render.objects import components, teardown
from activities.workloads.activities import WorkloadActivities
from activities.workloads.teardown_steps import run_step
from api_types import labels, names
from api_types.errors import PermissionDenied
from api_types.messages.caches import DeleteCacheObjects
from api_types.messages.cluster_work import ClusterFacts, Connection, RunTeardownStep
from tests.activities.environment.asking import asked_by
from tests.activities.environment.stored_cluster import (
    StoredCluster,
    StoredPool,
    an_object,
)

DEPLOYMENT = kinds.DEPLOYMENT
SERVICE = GroupVersionKind("v1", "Service")
CONNECTION = Connection(cluster="eu", namespace="modelplane-system", name="eu")
WORKLOAD = names.workload_name("ml", "qwen-1")
ENGINE = ObjectId(DEPLOYMENT, "ml", "engine")
MINUTE = timedelta(minutes=1)
LOOKS_MAX = 5
"""The maximum number of reads of the Job: without forceAfter the deletion of a cache
would never end.
"""


def a_deleter(cluster: StoredCluster, force_after: timedelta | None = None) -> Deleter:
    return Deleter(cluster, "u", lambda _: None, force_after)


def a_step(number: int, **fields: Any) -> RunTeardownStep:
    return RunTeardownStep(
        connection=CONNECTION,
        facts=ClusterFacts(),
        namespace="ml",
        uid="u",
        workload_name=WORKLOAD,
        workload_namespace="ml",
        number=number,
        wait_seconds=0.001,
        **fields,
    )


def an_engine_and_its_pod(overdue: timedelta | None) -> StoredCluster:
    """A Deployment that is being deleted in the foreground, with a pod that does not
    end.
    """
    marks = {labels.REPLICA: WORKLOAD, labels.COMPONENT: components.ENGINE}
    engine = an_object(DEPLOYMENT, "engine", overdue=timedelta(), **marks)
    pod = an_object(kinds.POD, "pod", overdue=overdue, **{labels.WORKLOAD: "engine"})
    return StoredCluster(engine, pod)


@pytest.mark.parametrize(
    ("force_after", "overdue", "deleted"),
    [
        (None, 60 * MINUTE, []),
        (MINUTE, None, []),
        (MINUTE, 0.9 * MINUTE, []),
        (MINUTE, 1.1 * MINUTE, [("pod", 0)]),
    ],
    ids=[
        "without forceAfter",
        "a pod that is not being deleted",
        "before forceAfter",
        "after forceAfter",
    ],
)
async def test_a_pod_is_deleted_without_grace_when_force_after_has_passed_since_its_grace_period(
    force_after: timedelta | None,
    overdue: timedelta | None,
    deleted: list[tuple[str, int]],
) -> None:
    cluster = an_engine_and_its_pod(overdue)
    await a_deleter(cluster, force_after).until_gone([ENGINE], timedelta())
    assert cluster.deleted == deleted


class WithoutPodRights(StoredCluster):
    """A cluster whose user may not delete pods."""

    async def delete(self, target: ObjectId, **options: Any) -> bool:
        if target.kind == kinds.POD:
            raise PermissionDenied("pods is forbidden")
        return await super().delete(target, **options)


def a_picker_and_its_pod(
    made: type[StoredCluster], grace_seconds: int
) -> StoredCluster:
    """A picker's Deployment that is being deleted in the foreground, and its pod."""
    marks = {labels.COMPONENT: components.PICKER}
    picker = an_object(DEPLOYMENT, "engine", overdue=timedelta(), **marks)
    picker["spec"] = {"selector": {"matchLabels": {"app": "picker"}}}
    pod = an_object(kinds.POD, "pod", overdue=timedelta(), app="picker")
    pod["metadata"]["deletionGracePeriodSeconds"] = grace_seconds
    return made(picker, pod, held=("pod",))


@pytest.mark.parametrize(
    ("made", "grace_seconds", "deleted"),
    [
        (StoredCluster, 3600, [("pod", 5)]),
        (StoredCluster, 5, []),
        (WithoutPodRights, 3600, [("engine", None)]),
    ],
    ids=["it is shortened", "it is short already", "it may not be shortened"],
)
async def test_a_teardown_does_not_wait_for_the_grace_period_of_a_picker(
    made: type[StoredCluster],
    grace_seconds: int,
    deleted: list[tuple[str, int | None]],
) -> None:
    cluster = a_picker_and_its_pod(made, grace_seconds)
    await a_deleter(cluster).until_gone([ENGINE], timedelta())
    assert cluster.deleted == deleted


async def test_only_pods_are_deleted_without_grace() -> None:
    marks = {labels.WORKLOAD: "engine"}
    overdue = 60 * MINUTE
    replica_set = an_object(
        GroupVersionKind("apps/v1", "ReplicaSet"), "set", overdue=overdue, **marks
    )
    cluster = StoredCluster(
        an_object(DEPLOYMENT, "engine", overdue=overdue), replica_set
    )
    result = await a_deleter(cluster, MINUTE).until_gone([ENGINE], timedelta())
    assert (cluster.deleted, [item.name for item in result.remaining]) == (
        [],
        ["engine", "set"],
    )


@pytest.mark.slow
async def test_a_teardown_step_of_a_replica_obeys_force_after(tmp_path: Path) -> None:
    for force_after, deleted in ((MINUTE, [("pod", 0)]), (None, [])):
        cluster = an_engine_and_its_pod(60 * MINUTE)
        pool, store = StoredPool(cluster), SecretDirectory(tmp_path)
        workloads = WorkloadActivities(pool, store, RenderSettings(), force_after)
        step = workloads.teardown_replica_step
        await asked_by("modelreplica/ml/qwen-1").run(step, a_step(teardown.ENGINES))
        assert cluster.deleted == deleted


async def test_the_deletion_of_a_cache_obeys_force_after(tmp_path: Path) -> None:
    job = an_object(kinds.JOB, names.cache_job_name("claim"), overdue=timedelta())
    job["metadata"]["finalizers"] = ["foregroundDeletion"]
    marks = {kinds.JOB_NAME_LABEL: names.cache_job_name("claim")}
    pod = an_object(kinds.POD, "pod", overdue=60 * MINUTE, **marks)
    pod["metadata"]["ownerReferences"] = [{"kind": "Job"}]

    class Collected(StoredCluster):
        """Its garbage collector deletes the Job after its last pod."""

        looks = 0

        async def get(self, target: ObjectId) -> Json | None:
            self.looks += 1
            assert self.looks < LOOKS_MAX, (
                "the deletion waits for a pod that it never deletes"
            )
            return await super().get(target)

        async def delete(self, target: ObjectId, **options: Any) -> bool:
            deleted = await super().delete(target, **options)
            self.objects.pop(ObjectId.of(job), None)
            return deleted

    cluster = Collected(job, pod)
    store = SecretDirectory(tmp_path)
    caches = CacheActivities(StoredPool(cluster), store, RenderSettings(), MINUTE)
    order = DeleteCacheObjects(
        connection=CONNECTION,
        cluster="eu",
        namespace="ml",
        uid="u",
        claim="claim",
        steps=[teardown.CACHE_JOB],
    )
    await asked_by("modelcache/ml/weights").run(caches.delete_cache_objects, order)
    assert cluster.deleted == [("pod", 0)]


async def test_without_an_inventory_a_step_deletes_its_own_component_and_no_other() -> (
    None
):
    def service(name: str, component: str, uid: str = "u") -> Any:
        marks = {labels.REPLICA: WORKLOAD, labels.COMPONENT: component}
        return an_object(SERVICE, name, uid, overdue=None, **marks)

    others = service("of another", components.ROUTING, "another")
    route, picker = (
        service("route", components.ROUTING),
        service("picker", components.PICKER),
    )
    cluster = StoredCluster(route, picker, others)
    result = await run_step(a_deleter(cluster), a_step(4))
    assert (cluster.deleted, result.skipped) == (
        [("route", None)],
        [
            (
                "v1/Service/ml/of another exists already and belongs to ModelReplica "
                "ml/qwen-1 (uid another)"
            )
        ],
    )
    await run_step(a_deleter(cluster), a_step(5))
    assert cluster.deleted == [("route", None), ("picker", None)]


@pytest.mark.parametrize("manager", [None, "helm"])
async def test_annotations_of_an_unmanaged_object_name_no_owner(
    manager: str | None,
) -> None:
    item = an_object(SERVICE, "theirs")
    assert (owner_of(item).workflow_id, conflict(item, "u")) == (
        "modelreplica/ml/qwen-1",
        "",
    )
    item["metadata"]["labels"] = {labels.MANAGED_BY: manager} if manager else None
    assert (owner_of(item), conflict(item, "u")) == (
        ("", "", "", ""),
        "v1/Service/ml/theirs exists already and belongs to no known owner",
    )
    cluster = StoredCluster(item)
    result = await a_deleter(cluster).until_gone([ObjectId.of(item)], timedelta())
    refusal = "v1/Service/ml/theirs exists already and belongs to no known owner"
    assert (cluster.deleted, result.skipped) == ([], [refusal])
