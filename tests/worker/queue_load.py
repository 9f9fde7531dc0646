"""Workflows that schedule cluster tasks like entities, and report the wait for a
worker.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from temporalio import workflow
from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ActivityError

from activities.clusters.activities import ClusterActivities
from activities.workloads.activities import WorkloadActivities
from api_types import names
from api_types.messages.cluster_work import (
    ApplyReplica,
    ClusterFacts,
    Connect,
    Connection,
    RunTeardownStep,
    WatchCluster,
)
from workflows.entity.calls import activity_options

LOAD_QUEUE = "queue-load"

Load = Mapping[str, WorkflowHandle[Any, Any]]
"""The workflows, by cluster."""


def connection(cluster: str, queue: str = "") -> Connection:
    """The connection to a cluster."""
    return Connection(
        cluster=cluster, namespace="modelplane-system", name=cluster, task_queue=queue
    )


@workflow.defn(sandboxed=False)
class QueueLoad:
    """Watches one cluster for ever, and runs one task of each other class per signal."""

    def __init__(self) -> None:
        self.asked = 0
        self.done = 0

    @workflow.signal
    def work(self) -> None:
        """Connect to the cluster, apply and tear down."""
        self.asked += 1

    @workflow.query
    def completed(self) -> int:
        """Return the number of signals whose work is done."""
        return self.done

    @workflow.run
    async def run(self, cluster: str) -> None:
        """Run until terminated."""
        order = WatchCluster(connection=connection(cluster), cluster_uid=cluster)
        workflow.start_activity_method(
            ClusterActivities.watch_cluster,
            order,
            **activity_options.on_cluster(activity_options.WATCH, f"watch {cluster}"),
        )
        while True:
            await workflow.wait_condition(lambda: self.asked > self.done)
            await self._work(cluster)

    async def _work(self, cluster: str) -> None:
        facts, at = ClusterFacts(), connection(cluster)
        step = RunTeardownStep(
            connection=at,
            facts=facts,
            namespace="n",
            uid="u",
            workload_name="w",
            workload_namespace="n",
            number=4,
        )
        apply = ApplyReplica(
            connection=at,
            facts=facts,
            namespace="n",
            name="r",
            uid="u",
            generation=1,
            deployment="d",
            cluster=cluster,
            index=0,
            spec={},
        )
        await asyncio.gather(
            workflow.execute_activity_method(
                ClusterActivities.connect_cluster,
                Connect(connection=at),
                **activity_options.on_cluster(
                    activity_options.CONNECT, f"connect {cluster}"
                ),
            ),
            _refused(
                workflow.execute_activity_method(
                    WorkloadActivities.teardown_replica_step,
                    step,
                    **activity_options.on_cluster(
                        activity_options.TEARDOWN_STEP, f"tear down on {cluster}"
                    ),
                )
            ),
            _refused(
                workflow.execute_activity_method(
                    WorkloadActivities.apply_replica,
                    apply,
                    **activity_options.on_cluster(
                        activity_options.APPLY, f"apply to {cluster}"
                    ),
                )
            ),
        )
        self.done += 1


async def _refused(apply: Any) -> None:
    """A replica's task would end as soon as a worker has it."""
    try:
        await apply
    except ActivityError:
        return


async def watchers(load: Load, *, since: Any = None) -> dict[str, str]:
    """Return the worker identity of each running watch, by cluster.

    With `since`, only watches with a later heartbeat are included.
    """
    described = await asyncio.gather(*(handle.describe() for handle in load.values()))
    return {
        cluster: each.last_worker_identity
        for cluster, found in zip(load, described, strict=True)
        for each in found.raw_description.pending_activities
        if each.activity_type.name == "watch_cluster"
        and each.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
        and (
            since is None
            or each.last_heartbeat_time.ToDatetime(tzinfo=since.tzinfo) > since
        )
    }


async def completed(load: Load, clusters: Sequence[str]) -> int:
    """Return the number of completed signals on some of the clusters."""
    return sum(
        await asyncio.gather(
            *(load[cluster].query(QueueLoad.completed) for cluster in clusters)
        )
    )


async def work_of(handle: WorkflowHandle[Any, Any]) -> set[str]:
    """Return the types of the tasks that a worker has started."""
    scheduled: dict[int, str] = {}
    begun: set[str] = set()
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            kind = event.activity_task_scheduled_event_attributes.activity_type
            scheduled[event.event_id] = kind.name
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            order = event.activity_task_started_event_attributes.scheduled_event_id
            begun.add(scheduled[order])
    return begun


async def start_load(client: Client, clusters: Sequence[str]) -> Load:
    """Start a workflow per cluster, under the id of the object that it stands for.

    Only a workflow with such an id may schedule work there.
    """
    handles = await asyncio.gather(
        *(
            client.start_workflow(
                QueueLoad.run,
                cluster,
                id=names.workflow_id("InferenceCluster", "", cluster),
                task_queue=LOAD_QUEUE,
            )
            for cluster in clusters
        )
    )
    return dict(zip(clusters, handles, strict=True))
