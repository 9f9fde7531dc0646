"""Simulated clusters: the results of the activities on clusters, and the reports of an observer.

To the workflows they look like real clusters: they connect and are watched, replicas
are applied and become ready, caches are staged. Use them to test the messages between
workflows and the size of histories. Other tests check the behaviour of real clusters.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker
from temporalio.workflow import ActivityConfig

from activities.cluster_objects.cluster_api import ClusterApi, ClusterPool
from activities.clusters.activities import ClusterActivities
from activities.clusters.closed_replicas import ClosedReplicas, DeploymentNotifier
from activities.render.cache.artifact import artifact_key, claim_name
from activities.render.inputs.facts import CacheInput
from api_types import labels, names, queues
from api_types.errors import (
    ClusterUnreachable,
    CredentialsInvalid,
    NoControlCluster,
    TransientError,
)
from api_types.messages.caches import (
    ApplyCache,
    AwaitCredential,
    CacheApplied,
    DeleteCacheObjects,
    ResolvedRevision,
    ResolveRevision,
)
from api_types.messages.cluster_work import (
    Applied,
    AppliedEngine,
    AppliedObject,
    ApplyReplica,
    ClusterFacts,
    Connect,
    Connection,
    PruneResult,
    RunTeardownStep,
    TeardownStepResult,
    WatchCluster,
)
from api_types.messages.gateway_work import RemoveBackend, RemoveRoute
from api_types.messages.observations import (
    Observed,
    ObservedCache,
    ObservedCluster,
    ObservedJob,
    ObservedObject,
    ObservedReplica,
    ObservedRoute,
    ObservedVolume,
    ObservedWorkload,
)
from testbed.running import Running
from tests.environment.idle_clusters import IdleCluster
from tests.environment.waiting import pauses
from tests.workflows.environment.harness import ControlPlane, Json
from tests.workflows.environment.protocol_fleet import ProtocolFleet, protocol_fleet
from workflows.entity.calls import activity_options

API_VERSION = "modelplane.ai/v1alpha1"
HEARTBEAT_SECONDS = 5
_HEARTBEATS_SENT = timedelta(seconds=1)
_DOWN = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.DEADLINE_EXCEEDED,
)
_NO_SECRET = "Secret ml/hub does not exist"  # noqa: S105 - a text


class SimulatedCluster(IdleCluster):
    """A cluster that answers unless it is in `unreachable`."""

    def __init__(self, name: str, unreachable: set[str]) -> None:
        self.name, self.unreachable = name, unreachable

    async def version(self) -> str:
        if self.name in self.unreachable:
            raise ClusterUnreachable(f"cluster {self.name}: no response")
        return await super().version()


@dataclass
class SimulatedClusters(ClusterPool):
    """The activities on simulated clusters.

    `missing` names clusters without credentials, `unreachable` clusters that do not
    answer, and `lacking` deployments whose replicas reference a missing Secret.
    `settings` overrides the worker settings in the facts of a cluster.
    """

    missing: set[str] = field(default_factory=set)
    unreachable: set[str] = field(default_factory=set)
    lacking: set[str] = field(default_factory=set)
    settings: Mapping[str, int | str] = field(default_factory=dict)
    closed: ClosedReplicas = field(default_factory=ClosedReplicas)
    # References keep the tasks from being garbage collected before they run.
    _reports: set[asyncio.Task[None]] = field(default_factory=set)

    async def at(self, connection: Connection) -> ClusterApi:
        if connection.cluster in self.missing:
            raise CredentialsInvalid(
                f"Secret {connection.namespace}/{connection.name} does not exist"
            )
        return SimulatedCluster(connection.cluster, self.unreachable)

    async def close(self) -> None:
        pass

    @activity.defn
    async def connect_cluster(self, order: Connect) -> ClusterFacts:
        await (await self.at(order.connection)).version()
        return ClusterFacts(kubernetes_version="1.35", dra_version="v1").model_copy(
            update=self.settings
        )

    @activity.defn
    async def watch_cluster(self, order: WatchCluster) -> None:
        gateway = ObservedCluster(gateway_address="10.245.0.1")
        self._report(
            names.workflow_id("InferenceCluster", "", order.connection.cluster),
            Observed(owner_uid=order.cluster_uid, digest="1", cluster=gateway),
        )
        cluster = order.connection.cluster
        notifier = DeploymentNotifier(
            self.closed, activity.client(), cluster, lambda _: None
        )
        closed = asyncio.create_task(notifier.run())
        try:
            while not closed.done():
                activity.heartbeat()
                await asyncio.sleep(HEARTBEAT_SECONDS)
        finally:
            closed.cancel()

    @activity.defn
    async def apply_replica(self, order: ApplyReplica) -> Applied:
        if order.deployment in self.lacking:
            raise CredentialsInvalid(_NO_SECRET, "SecretMissing")
        workload = names.workload_name(order.namespace, order.name)
        target = AppliedObject(
            key="model-serving-main",
            id=f"apps/v1/Deployment/{order.namespace}/{workload}-main",
            digest="as-applied",
        )
        engine = AppliedEngine(
            name="main",
            kind="Deployment",
            workload_name=f"{workload}-main",
            copies=1,
            template_hash="h",
        )
        seen = ObservedReplica(
            objects=[ObservedObject(id=target.id, digest=target.digest)],
            workloads=[
                ObservedWorkload(
                    name=engine.workload_name,
                    kind="Deployment",
                    current=True,
                    desired=1,
                    updated=1,
                    ready=1,
                    available=1,
                    total=1,
                    pods_ready=1,
                )
            ],
            routes=[ObservedRoute(name=workload, accepted=True)],
            endpoints_ready=1,
        )
        self._report(
            names.workflow_id("ModelReplica", order.namespace, order.name),
            Observed(owner_uid=order.uid, digest=f"{order.generation}", replica=seen),
        )
        return Applied(
            hash="h",
            workload_name=workload,
            workload_namespace=order.namespace,
            inventory=[target],
            engines=[engine],
            routing_surface="service",
        )

    @activity.defn
    async def await_copies(self, order: ApplyReplica) -> None:
        if order.deployment in self.lacking:
            raise TransientError(_NO_SECRET)

    @activity.defn
    async def prune_replica(self, order: ApplyReplica) -> PruneResult:
        del order
        return PruneResult()

    @activity.defn
    async def teardown_replica_step(self, order: RunTeardownStep) -> TeardownStepResult:
        del order
        return TeardownStepResult()

    @activity.defn
    async def apply_cache(self, order: ApplyCache) -> CacheApplied:
        cache = CacheInput(
            namespace=order.namespace,
            name=order.name,
            uid=order.uid,
            generation=order.generation,
            cluster=order.cluster,
            spec=order.spec,
            revision=order.revision,
        )
        claim = claim_name(cache)
        seen = ObservedCache(
            cluster=order.cluster,
            volumes=[ObservedVolume(claim=claim, phase="Bound", digest="as-applied")],
            jobs=[
                ObservedJob(claim=claim, uid=f"job-{order.cluster}", state="Complete")
            ],
        )
        self._report(
            names.workflow_id("ModelCache", order.namespace, order.name),
            Observed(
                owner_uid=order.uid,
                digest=f"{order.cluster}/{order.generation}",
                cache=seen,
            ),
        )
        return CacheApplied(
            claim=claim,
            artifact_key=artifact_key(cache),
            volume_digest="as-applied",
            job_uid=f"job-{order.cluster}",
        )

    @activity.defn
    async def delete_cache_objects(
        self, order: DeleteCacheObjects
    ) -> TeardownStepResult:
        del order
        return TeardownStepResult()

    @activity.defn
    async def await_credential(self, order: AwaitCredential) -> str:
        del order
        while True:
            activity.heartbeat()
            await asyncio.sleep(HEARTBEAT_SECONDS)

    @activity.defn
    async def resolve_revision(self, order: ResolveRevision) -> ResolvedRevision:
        del order
        return ResolvedRevision(revision="a" * 40)

    @activity.defn
    async def remove_endpoint_backend(self, order: RemoveBackend) -> None:
        raise NoControlCluster(f"{order.name}: no control cluster is configured")

    @activity.defn
    async def remove_service_route(self, order: RemoveRoute) -> None:
        raise NoControlCluster(f"{order.name}: no control cluster is configured")

    def activities(self) -> list[Callable[..., Any]]:
        return [
            self.connect_cluster,
            ClusterActivities(self).await_connection,
            self.watch_cluster,
            self.apply_replica,
            self.await_copies,
            self.prune_replica,
            self.teardown_replica_step,
            self.apply_cache,
            self.delete_cache_objects,
            self.await_credential,
            self.resolve_revision,
            self.remove_endpoint_backend,
            self.remove_service_route,
        ]

    def _report(self, workflow_id: str, observed: Observed) -> None:
        """Send an observer's report after the activity has ended."""
        handle = activity.client().get_workflow_handle(workflow_id)

        async def send() -> None:
            await asyncio.sleep(0.2)
            await signal_if_open(handle, "observed", observed.wire())

        task = asyncio.create_task(send())
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)


async def signal_if_open(
    handle: WorkflowHandle[Any, Any], name: str, message: Json
) -> None:
    """Signal a workflow, and retry while the server is down.

    Ignore a workflow that has ended, as a watch does.
    """
    for pause in pauses():
        try:
            await handle.signal(name, message)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return
            if error.status not in _DOWN:
                raise
        else:
            return
        await asyncio.sleep(pause)


@asynccontextmanager
async def simulated_plane(
    clusters: SimulatedClusters | None = None, events: int = 0
) -> AsyncIterator[ControlPlane]:
    """Start a control plane in this process with a real Temporal server.

    Clusters exist once they are applied.

    `events` is as in `protocol_fleet`.
    """
    async with (
        protocol_fleet(clients=1, events=events) as fleet,
        plane_of(fleet, clusters or SimulatedClusters()) as plane,
    ):
        yield plane


@asynccontextmanager
async def plane_of(
    fleet: ProtocolFleet, clusters: SimulatedClusters
) -> AsyncIterator[ControlPlane]:
    """Start the control plane of a fleet, with simulated clusters."""
    async with serving_clusters(fleet.client, clusters):
        address = fleet.client.service_client.config.target_host
        running = Running(
            home=Path(),
            temporal_address=address,
            temporal_ui="",
            clusters={},
            control=None,
            manifests=Path(),
        )
        yield ControlPlane(fleet.client, running, None, lambda _: None)


@asynccontextmanager
async def serving_clusters(
    client: Client, clusters: SimulatedClusters
) -> AsyncIterator[None]:
    """Serve the task queues of clusters in this process."""
    async with AsyncExitStack() as stack:
        for queue in queues.cluster_queues(queues.CLUSTERS):
            worker = Worker(
                client,
                task_queue=queue,
                activities=clusters.activities(),
                # A cancellation arrives with the response to a heartbeat.
                max_heartbeat_throttle_interval=_HEARTBEATS_SENT,
                default_heartbeat_throttle_interval=_HEARTBEATS_SENT,
            )
            await stack.enter_async_context(worker)
        yield


def connects_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a connection to an unreachable cluster fail at once instead of after two
    minutes of attempts.
    """
    options = activity_options.CONNECT
    once = ActivityConfig(
        **{**options.config, "retry_policy": RetryPolicy(maximum_attempts=1)}
    )
    monkeypatch.setattr(activity_options, "CONNECT", options._replace(config=once))


async def activities_scheduled(
    plane: ControlPlane, kind: str, name: str, namespace: str = ""
) -> list[str]:
    """Return the names of the activities that an object's current run scheduled,
    without local ones.
    """
    history = await plane.handle(kind, name, namespace).fetch_history()
    scheduled = [
        event.activity_task_scheduled_event_attributes for event in history.events
    ]
    return [each.activity_type.name for each in scheduled if each.activity_type.name]


def a_class(name: str = "h100-8x") -> Json:
    """Return a class of nodes with eight GPUs."""
    device = {
        "name": "gpu",
        "claim": "DRA",
        "driver": "gpu.nvidia.com",
        "deviceClassName": "gpu.nvidia.com",
        "count": 8,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceClass",
        "metadata": {"name": name},
        "spec": {"devices": [device]},
    }


def a_cluster(name: str, *, nodes: int = 10, class_name: str = "h100-8x") -> Json:
    """Return a cluster with one pool and a storage class for caches."""
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceCluster",
        "metadata": {
            "name": name,
            "annotations": {labels.STACK: "external", labels.ROUTING: "service"},
        },
        "spec": {
            "cluster": {
                "source": "Existing",
                "existing": {
                    "secretRef": {"name": f"{name}-kubeconfig"},
                    "cache": {"storageClassName": "rwx"},
                },
            },
            "nodePools": [
                {"name": "gpus", "className": class_name, "nodeCount": nodes}
            ],
        },
    }
