"""The adapters of Kueue and KAI on a real API server with those projects' kinds.

The projects' controllers do not run here. The tests write in their place, and the
server validates that against their definitions.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from activities.cluster_objects.cluster_api import (
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.cluster_objects.kinds import NODE, POD
from activities.render.inputs.settings import RenderSettings
from api_types import clock, labels
from api_types.messages.capacity import Admission, CapacityQueue, CapacitySnapshot
from api_types.messages.cluster_work import ApplyReplica
from api_types.names import tenant_queue, workload_name
from scheduler.fleet.manifests import cluster_view
from tests.activities.clusters.capacity.test_observing import observing, seen_by
from tests.activities.environment import operator
from tests.activities.environment.cluster_under_test import ClusterUnderTest, eventually
from tests.activities.render.builders import a_member, an_engine
from tests.scheduler import builders

pytestmark = pytest.mark.testbed

KUEUE_GROUP, KAI_QUEUE, KAI_GROUP = (
    "kueue.x-k8s.io",
    "scheduling.run.ai/v2",
    "scheduling.run.ai/v2alpha2",
)
NEWEST = "v1beta2"
GPU = "nvidia.com/gpu"
ONE = [{"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1}]
TEN_PAST = "2026-01-01T12:10:00Z"
TEN_PAST_MS = 1_767_269_400_000


@pytest.fixture
async def kueue(cluster: ClusterUnderTest) -> AsyncIterator[ClusterUnderTest]:
    async with operator.definitions(cluster, "kueue", NEWEST):
        yield cluster


@pytest.fixture
async def kai(cluster: ClusterUnderTest) -> AsyncIterator[ClusterUnderTest]:
    async with (
        operator.definitions(cluster, "kai-scheduler", "v2"),
        operator.definitions(cluster, "kai-scheduler", "v2alpha2"),
    ):
        yield cluster


def a_replica(cluster: ClusterUnderTest, **facts: str) -> ApplyReplica:
    order = cluster.order([an_engine("main", a_member(requests=ONE))])
    return order.model_copy(update={"facts": order.facts.model_copy(update=facts)})


async def engine_pod(cluster: ClusterUnderTest, order: ApplyReplica) -> Json:
    """Return the one engine pod of a replica that is not being deleted."""

    async def look() -> list[Json]:
        found = (
            await (await cluster.api()).list(
                Selection(POD, order.namespace, labels=labels.SERVING)
            )
        ).items
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    (pod,) = await eventually(look)
    found: Json = pod
    return found


def condition(kind: str, status: str, reason: str, message: str = "") -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": TEN_PAST,
    }


def queue(snapshot: CapacitySnapshot, name: str) -> CapacityQueue:
    return next(
        (found for found in snapshot.queues if found.name == name),
        CapacityQueue(name=""),
    )


def of(snapshot: CapacitySnapshot, workload: str) -> Admission:
    return next(
        (found for found in snapshot.admission if found.workload == workload),
        Admission(workload=workload, state=""),
    )


def placed(snapshot: CapacitySnapshot) -> int:
    """Return how many replicas of whole 8-GPU nodes the scheduler would place.

    Pool h100 has five nodes, and this snapshot.
    """
    device = {
        "name": "gpu",
        "claim": "DRA",
        "driver": builders.DRIVER,
        "deviceClassName": builders.DRIVER,
        "count": 8,
    }
    roomy = {"name": "h100", "nodesTotal": 5, "nodesSchedulable": 5}
    manifest = {
        "metadata": {"name": "a"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "gateway": {"address": "gateway"},
            "gpuPools": [{"name": "h100", "nodes": 5, "devices": [device]}],
            "capacity": {**snapshot.wire(), "pools": [roomy]},
        },
    }
    wanted = builders.deployment(
        builders.engine("main", builders.alone(builders.ask(builders.IS_GPU))), want=9
    )
    return len(
        builders.decided(
            builders.fleet(cluster_view(manifest)), wanted, now=snapshot.observed_at
        ).placements
    )


# Kueue


def kueue_object(
    kind: str,
    name: str,
    spec: Json,
    status: Json | None = None,
    *,
    version: str = NEWEST,
    **metadata: Any,
) -> Json:
    document = {
        "apiVersion": f"{KUEUE_GROUP}/{version}",
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }
    return {**document, "status": status} if status else document


def cluster_queue(
    name: str, nominal: int, reserved: int, version: str = NEWEST, **limits: Any
) -> Json:
    group = {
        "coveredResources": [GPU],
        "flavors": [
            {
                "name": "h100",
                "resources": [{"name": GPU, "nominalQuota": nominal, **limits}],
            }
        ],
    }
    spec = {
        "cohortName" if version == NEWEST else "cohort": "all",
        "namespaceSelector": {},
        "resourceGroups": [group],
    }
    return kueue_object("ClusterQueue", name, spec, held(reserved), version=version)


def held(reserved: int, active: str = "True") -> Json:
    """Return the status of a ClusterQueue with this many reserved and unused GPUs."""
    return {
        "conditions": [condition("Active", active, "Ready")],
        "pendingWorkloads": 1,
        "flavorsReservation": [
            {"name": "h100", "resources": [{"name": GPU, "total": reserved}]}
        ],
        "flavorsUsage": [{"name": "h100", "resources": [{"name": GPU, "total": 0}]}],
    }


@pytest.mark.parametrize("version", [NEWEST, "v1beta1"])
async def test_kueue_queues_are_listed_and_watched(
    cluster: ClusterUnderTest, version: str
) -> None:
    async with operator.definitions(cluster, "kueue", version):
        await queues_are_listed_and_watched(cluster, version)


async def queues_are_listed_and_watched(
    cluster: ClusterUnderTest, version: str
) -> None:
    """Red has 16 GPUs, 8 of them reserved, and may borrow 8 from blue.

    A queue serves the tenant whose LocalQueue points to it.
    """
    red = ObjectId(
        GroupVersionKind(f"{KUEUE_GROUP}/{version}", "ClusterQueue"), "", "red"
    )
    await operator.make(
        cluster,
        kueue_object(
            "ResourceFlavor",
            "h100",
            {"nodeLabels": {labels.POOL: "h100"}},
            version=version,
        ),
    )
    await operator.make(cluster, cluster_queue("red", 16, 8, version, borrowingLimit=8))
    await operator.make(cluster, cluster_queue("blue", 24, 8, version, lendingLimit=8))
    tenant = tenant_queue(builders.NAMESPACE)
    await operator.make(
        cluster,
        kueue_object(
            "LocalQueue",
            tenant,
            {"clusterQueue": "red"},
            version=version,
            namespace="default",
        ),
    )
    async with observing(cluster, "kueue") as client:
        listed = await seen_by(
            client, cluster, lambda seen: queue(seen, "red/h100").tenants == [tenant]
        )
        found = queue(listed, "red/h100")
        assert (
            found.pools,
            found.nominal,
            found.used,
            found.borrowable,
            found.limit,
            found.free,
        ) == (["h100"], 16, 8, 8, 24, 16)
        assert queue(listed, "blue/h100").free == 24
        assert placed(listed) == 2

        await operator.patch(cluster, red, {"status": held(20)}, "status")
        # 4 of the 20 are borrowed, so 4 more can be borrowed, which is less than a
        # node.
        borrowed = await seen_by(
            client, cluster, lambda seen: queue(seen, "red/h100").used == 20
        )
        assert (
            queue(borrowed, "red/h100").borrowed,
            queue(borrowed, "red/h100").free,
            placed(borrowed),
        ) == (4, 4, 0)

        await operator.patch(
            cluster, red, {"spec": {"stopPolicy": "Hold"}, "status": held(0)}
        )
        await operator.patch(cluster, red, {"status": held(0)}, "status")
        stopped = await seen_by(
            client, cluster, lambda seen: queue(seen, "red/h100").used == 0
        )
        assert (
            queue(stopped, "red/h100").active,
            queue(stopped, "red/h100").free,
            placed(stopped),
        ) == (False, 0, 0)
    async with observing(cluster, "kueue") as client:
        again = await seen_by(client, cluster, lambda seen: bool(seen.queues))
        # a list gives the same result as the watch
        assert again.queues == stopped.queues


async def test_kueue_a_workload_that_waits_is_evicted_or_is_admitted_again_is_observed(
    kueue: ClusterUnderTest,
) -> None:
    cluster = kueue
    order = a_replica(cluster)
    ours = workload_name(order.namespace, order.name)
    async with observing(cluster, "kueue") as client:
        await cluster.apply(order)
        pod = await engine_pod(cluster, order)
        await seen_by(client, cluster, lambda seen: of(seen, ours).state == "Admitted")
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        }
        sets = [
            {
                "name": "main",
                "count": 1,
                "template": {
                    "spec": {"containers": [{"name": "engine", "image": "engine"}]}
                },
            }
        ]
        manifest = kueue_object(
            "Workload",
            "pod-1",
            {"podSets": sets},
            namespace=order.namespace,
            ownerReferences=[owner],
        )
        target = await operator.make(cluster, manifest)

        async def write(*conditions: Json) -> None:
            await operator.patch(
                cluster, target, {"status": {"conditions": list(conditions)}}, "status"
            )

        await write(
            condition("Evicted", "True", "Preempted", "in favour of another"),
            condition("QuotaReserved", "False", "Pending"),
        )
        lost = await seen_by(
            client, cluster, lambda seen: of(seen, ours).state == "Evicted"
        )
        assert (of(lost, ours).reason, of(lost, ours).since) == (
            "Preempted: in favour of another",
            TEN_PAST_MS,
        )
        # Replicas of other tests may still exist.
        view = cluster_view(
            {"metadata": {"name": "a"}, "status": {"capacity": lost.wire()}}
        )
        assert [
            admitted.state for admitted in view.admission if admitted.workload == ours
        ] == ["Evicted"]

        await write(
            condition("Evicted", "False", "QuotaReserved"),
            condition("QuotaReserved", "True", "QuotaReserved"),
        )
        await seen_by(client, cluster, lambda seen: of(seen, ours).state == "Admitted")


async def test_kueue_gives_the_reason_of_a_pending_pod(
    kueue: ClusterUnderTest,
) -> None:
    cluster = kueue
    nine = [{**ONE[0], "count": 9}]
    order = cluster.order([an_engine("main", a_member(requests=nine))])
    ours = workload_name(order.namespace, order.name)
    async with observing(cluster, "kueue") as client:
        await cluster.apply(order)
        pod = await engine_pod(cluster, order)
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        }
        sets = [
            {
                "name": "main",
                "count": 1,
                "template": {
                    "spec": {"containers": [{"name": "engine", "image": "engine"}]}
                },
            }
        ]
        status = {
            "conditions": [
                condition(
                    "QuotaReserved", "False", "Pending", "no quota for nvidia.com/gpu"
                )
            ]
        }
        await operator.make(
            cluster,
            kueue_object(
                "Workload",
                "pod-2",
                {"podSets": sets},
                status,
                namespace=order.namespace,
                ownerReferences=[owner],
            ),
        )
        waits = await seen_by(
            client,
            cluster,
            lambda seen: (
                of(seen, ours).reason == "Pending: no quota for nvidia.com/gpu"
            ),
        )
        assert of(waits, ours).state == "Pending"


# KAI


def kai_queue(name: str, allocated: str, parent: str = "", **gpu: int) -> Json:
    return {
        "apiVersion": KAI_QUEUE,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {
            "parentQueue": parent,
            "priority": 100,
            "resources": {"gpu": {"overQuotaWeight": 1, **gpu}},
        },
        "status": {"allocated": {GPU: allocated}, "requested": {GPU: "20"}},
    }


async def test_kai_queues_are_listed_and_watched(kai: ClusterUnderTest) -> None:
    """The tenant's own limit leaves 16 GPUs, and its parent's 20.

    A fraction of a GPU counts as one.
    """
    cluster, tenant = kai, tenant_queue(builders.NAMESPACE)
    parent = await operator.make(
        cluster, kai_queue("company", "11500m", quota=-1, limit=32)
    )
    await operator.make(cluster, kai_queue(tenant, "8", "company", quota=8, limit=24))
    async with observing(cluster, "kai") as client:
        listed = await seen_by(
            client,
            cluster,
            lambda seen: {"company", tenant} <= {found.name for found in seen.queues},
        )
        found = queue(listed, tenant)
        assert (
            found.tenants,
            found.nominal,
            found.used,
            found.limit,
            found.free,
            found.pending,
        ) == ([tenant], 8, 8, 24, 16, 12)
        assert (queue(listed, "company").used, queue(listed, "company").free) == (
            12,
            20,
        )
        assert placed(listed) == 2

        await operator.patch(
            cluster, parent, {"status": {"allocated": {GPU: "23500m"}}}, "status"
        )
        fuller = await seen_by(
            client, cluster, lambda seen: queue(seen, "company").used == 24
        )
        assert (queue(fuller, tenant).free, placed(fuller)) == (8, 1)
    async with observing(cluster, "kai") as client:
        again = await seen_by(
            client,
            cluster,
            lambda seen: {"company", tenant} <= {found.name for found in seen.queues},
        )
        assert again.queues == fuller.queues


async def test_kai_a_replica_waits_in_its_pod_group_runs_and_is_evicted(
    kai: ClusterUnderTest,
) -> None:
    """The PodGroup is ours. This test binds and evicts in place of the scheduler."""
    cluster = kai
    order = a_replica(cluster, scheduler_type="kai")
    ours = workload_name(order.namespace, order.name)
    async with observing(cluster, "kai") as client:
        await cluster.apply(order, RenderSettings(kai_mode="explicit"))
        pod = await engine_pod(cluster, order)
        group = pod["metadata"]["annotations"]["pod-group-name"]
        unseen = await seen_by(
            client, cluster, lambda seen: of(seen, ours).state == "Pending"
        )
        assert of(unseen, ours).since > TEN_PAST_MS  # since the creation of the pod

        verdict = {
            **condition("UnschedulableOnNodePool", "True", "Unschedulable"),
            "nodePool": "default",
            "transitionID": "1",
            "reasons": [
                {"reason": "OverLimit", "message": "the queue has no quota left"}
            ],
        }
        target = ObjectId(
            GroupVersionKind(KAI_GROUP, "PodGroup"), order.namespace, group
        )
        await operator.patch(
            cluster, target, {"status": {"schedulingConditions": [verdict]}}, "status"
        )
        await seen_by(
            client,
            cluster,
            lambda seen: (
                of(seen, ours).reason == "OverLimit: the queue has no quota left"
            ),
        )

        node = (
            await (await cluster.api()).list(
                Selection(NODE, labels=f"{labels.POOL}=h100")
            )
        ).items[0]
        await operator.bind(cluster, pod, node["metadata"]["name"])
        await seen_by(client, cluster, lambda seen: of(seen, ours).state == "Admitted")

        async def running() -> Json | None:
            found = await (await cluster.api()).get(ObjectId.of(pod))
            return (
                found if found and found["status"].get("phase") == "Running" else None
            )

        bound = await eventually(running)  # its node has reported its final state
        # Kubernetes removes the condition from a pod that still exists after two
        # minutes.
        at = clock.utc_now().replace(microsecond=0)
        taken = {
            **condition(
                "DisruptionTarget",
                "True",
                "PreemptionByScheduler",
                "reclaimed for another queue",
            ),
            "lastTransitionTime": clock.timestamp(at),
        }
        await operator.patch(
            cluster,
            ObjectId.of(pod),
            {"status": {"conditions": [*bound["status"]["conditions"], taken]}},
            "status",
        )
        lost = await seen_by(
            client, cluster, lambda seen: of(seen, ours).state == "Evicted"
        )
        assert (of(lost, ours).reason, of(lost, ours).since) == (
            "PreemptionByScheduler: reclaimed for another queue",
            int(at.timestamp() * 1000),
        )

        await operator.delete(cluster, ObjectId.of(pod))
        await seen_by(client, cluster, lambda seen: of(seen, ours).state == "Pending")
