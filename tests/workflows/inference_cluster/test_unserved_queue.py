"""A cluster whose task queue no worker serves reports that and recovers automatically,
on a real server with simulated clusters.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client
from temporalio.worker import Worker

import worker
from activities.cluster_objects.cluster_api import ClusterApi
from activities.clusters import activities as cluster_activities
from activities.messaging.search_attributes import identity_at_start
from activities.messaging.sending import ensure_scheduler
from api_types import names, queues
from api_types.errors import CredentialsInvalid
from api_types.messages.cluster_work import Connection
from api_types.messages.entities import Delete, SetSpec
from api_types.sections.programs import WorkerSettings
from api_types.sections.temporal import QueueSettings
from api_types.settings import Settings
from tests.environment.idle_clusters import IdlePool
from tests.workflows.environment.harness import (
    Json,
    condition,
    eventually,
    message,
    reason,
)
from tests.workflows.environment.protocol_fleet import workers_here
from tests.workflows.environment.short_runs import server_with_short_runs
from workflows.entity.calls import activity_options

QUEUE = "eu"
# Instead of 20 s, for each of several waits.
UNSERVED_AFTER = timedelta(seconds=3)
# Instead of 30 s.
HEARTBEAT_TIMEOUT = timedelta(seconds=10)
MINUTE = timedelta(minutes=1)


def a_manifest(name: str) -> Json:
    existing = {"source": "Existing", "existing": {"secretRef": {"name": name}}}
    metadata = {
        "name": name,
        "annotations": {
            "modelplane.ai/task-queue": QUEUE,
            "modelplane.ai/stack": "external",
        },
    }
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": metadata,
        "spec": {"cluster": existing},
    }


@dataclass
class Clusters:
    """InferenceClusters on a server, and the workers of their task queue, which start and stop."""

    client: Client
    threads: ThreadPoolExecutor
    running: list[asyncio.Task[None]] = field(default_factory=list)

    async def apply(self, name: str) -> None:
        await self.client.start_workflow(
            "InferenceCluster",
            None,
            id=names.workflow_id("InferenceCluster", "", name),
            task_queue=queues.WORKFLOWS,
            **identity_at_start("InferenceCluster", "", name),
            start_signal="set_spec",
            start_signal_args=[
                SetSpec(request_id=name, by="test", manifest=a_manifest(name)).wire()
            ],
        )

    async def delete(self, name: str) -> None:
        order = Delete(request_id=f"delete/{name}", by="test")
        await self.client.get_workflow_handle(
            names.workflow_id("InferenceCluster", "", name)
        ).signal("delete", order.wire())

    async def describe(self, name: str) -> Json:
        seen: Json = await self.client.get_workflow_handle(
            names.workflow_id("InferenceCluster", "", name)
        ).query("describe")
        return seen

    async def until(self, name: str, status: str, why: str) -> Json:
        """Wait for this status and reason of ClusterReady."""
        seen: Json = await eventually(
            lambda: self.describe(name),
            lambda seen: (
                (condition(seen, "ClusterReady"), reason(seen, "ClusterReady"))
                == (status, why)
            ),
            what=f"ClusterReady={status} {why} of {name}",
        )
        return seen

    async def until_watched(self, name: str) -> None:
        """Wait until a worker runs the watch of a cluster."""
        handle = self.client.get_workflow_handle(
            names.workflow_id("InferenceCluster", "", name)
        )

        async def runs() -> bool:
            pending = (await handle.describe()).raw_description.pending_activities
            started = [
                each.activity_type.name
                for each in pending
                if each.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
            ]
            return "watch_cluster" in started

        await eventually(runs, bool, what=f"the watch of {name}")

    async def on_the_queue(self, name: str, queue: str = QUEUE) -> list[str]:
        """Return the types of all tasks that a task queue of the cluster ever received."""
        history = await self.client.get_workflow_handle(
            names.workflow_id("InferenceCluster", "", name)
        ).fetch_history()
        orders = [
            event.activity_task_scheduled_event_attributes for event in history.events
        ]
        return [
            order.activity_type.name
            for order in orders
            if order.task_queue.name == queue
        ]

    def start_workers(self, *served: str, watches: int = 10) -> None:
        for each in self._workers(*served, watches=watches):
            self.running.append(asyncio.create_task(each.run()))

    def _workers(self, *served: str, watches: int) -> list[Worker]:
        limits = WorkerSettings(
            graceful_shutdown_seconds=0, max_concurrent_watches=watches
        )
        settings = Settings(queues=QueueSettings(serve=served), worker=limits)
        return list(workers_here(self.client, settings, self.threads).values())

    async def lose_workers(self) -> None:
        """Stop the workers of the cluster task queue. Workflow workers continue."""
        losing, self.running = self.running, []
        for task in losing:
            task.cancel()
        await asyncio.gather(*losing, return_exceptions=True)


@asynccontextmanager
async def clusters() -> AsyncIterator[Clusters]:
    with ThreadPoolExecutor(4) as threads:
        async with server_with_short_runs(events=10_000) as client:
            entities, world = Clusters(client, threads), Clusters(client, threads)
            entities.start_workers(queues.WORKFLOWS, queues.SCHEDULER)
            await ensure_scheduler(client)
            try:
                yield world
            finally:
                await world.lose_workers()
                await entities.lose_workers()


@pytest.fixture(autouse=True)
def idle_clusters_and_short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "KubernetesPool", IdlePool)
    # A cancelled watch ends with the next heartbeat, which is sent after most of the
    # timeout.
    monkeypatch.setattr(cluster_activities, "_HEARTBEAT_SECONDS", 1.0)
    change(
        monkeypatch,
        "WATCH",
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        schedule_to_start_timeout=UNSERVED_AFTER,
    )


def change(monkeypatch: pytest.MonkeyPatch, name: str, **times: timedelta) -> None:
    """Change the options of a class of activities."""
    options = getattr(activity_options, name)
    monkeypatch.setattr(
        activity_options, name, options._replace(config={**options.config, **times})
    )


@pytest.mark.testbed
async def test_a_cluster_with_an_unserved_queue_reports_that_and_recovers_when_a_worker_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Short only while there is no worker, because a busy worker may take a task later
    # than that.
    as_users_have_it = (
        activity_options.CONNECT.config["schedule_to_start_timeout"] or timedelta()
    )
    async with clusters() as world:
        change(monkeypatch, "CONNECT", schedule_to_start_timeout=UNSERVED_AFTER)
        await world.apply("eu-1")
        seen = await world.until("eu-1", "Unknown", "WaitingForWorker")
        assert message(seen, "ClusterReady") == (
            f"no worker serves task queue {QUEUE}; start one that reaches the "
            f"cluster, with queues.serve: [{QUEUE}]"
        )
        assert condition(seen, "Ready") == "Unknown"

        # It does not retry, which would fill its history: one task waits for a worker.
        await asyncio.sleep(4 * UNSERVED_AFTER.total_seconds())
        assert await world.on_the_queue("eu-1") == ["connect_cluster", "await_worker"]

        change(monkeypatch, "CONNECT", schedule_to_start_timeout=as_users_have_it)
        world.start_workers(QUEUE)
        await world.until("eu-1", "True", "ClusterRunning")
        await world.until_watched("eu-1")

        # The cluster was connected and observed, and then its workers left. It must not
        # keep showing its last state.
        change(monkeypatch, "CONNECT", schedule_to_start_timeout=UNSERVED_AFTER)
        await world.lose_workers()
        seen = await world.until("eu-1", "Unknown", "WaitingForWorker")
        assert "not watched since" in message(
            seen, "ClusterReady"
        ) or "no worker serves" in message(seen, "ClusterReady")
        assert condition(seen, "Ready") == "Unknown"
        seen = await eventually(
            lambda: world.describe("eu-1"),
            lambda seen: "no worker serves" in message(seen, "ClusterReady"),
            what="the reason",
        )
        change(monkeypatch, "CONNECT", schedule_to_start_timeout=as_users_have_it)
        world.start_workers(QUEUE)
        await world.until("eu-1", "True", "ClusterRunning")


@pytest.mark.testbed
async def test_a_cluster_without_a_worker_slot_for_its_watch_is_not_reported_as_unserved() -> (
    None
):
    async with clusters() as world:
        world.start_workers(QUEUE, watches=1)
        await world.apply("eu-1")
        # A cluster connects before it is watched, and a later one could get the slot.
        await world.until_watched("eu-1")
        await world.apply("eu-2")
        seen = await world.until("eu-2", "Unknown", "WaitingForWorker")
        assert f"no worker accepted the watch on task queue {QUEUE}-watch" in message(
            seen, "ClusterReady"
        )
        assert "raise worker.maxConcurrentWatches" in message(seen, "ClusterReady")
        # A worker does exist: the cluster is connected, and the activities of the other
        # cluster continue.
        await asyncio.sleep(2 * UNSERVED_AFTER.total_seconds())
        assert "no worker serves" not in message(
            await world.describe("eu-2"), "ClusterReady"
        )
        assert condition(await world.describe("eu-1"), "ClusterReady") == "True"

        # The waiting cluster takes the slot of the deleted one.
        await world.delete("eu-1")
        await world.until("eu-2", "True", "ClusterRunning")


class PoolWithoutSecrets(IdlePool):
    """Idle clusters, one of which has no Secret."""

    async def at(self, connection: Connection) -> ClusterApi:
        if connection.cluster == "eu-2":
            raise CredentialsInvalid("Secret modelplane-system/eu-2 does not exist")
        return await super().at(connection)


@pytest.mark.testbed
async def test_a_cluster_waits_for_a_worker_slot_to_wait_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "KubernetesPool", PoolWithoutSecrets)
    async with clusters() as world:
        world.start_workers(QUEUE, watches=1)
        await world.apply("eu-1")
        # A cluster connects before it is watched, and a later one could get the slot.
        await world.until_watched("eu-1")
        await world.apply("eu-2")
        await world.until("eu-2", "False", "CredentialsInvalid")

        async def to_wait() -> list[str]:
            return await world.on_the_queue("eu-2", f"{QUEUE}-watch")

        await eventually(
            to_wait,
            lambda seen: seen == ["await_connection", "await_worker"],
            what="the wait for a slot",
        )
        # Meanwhile, its Secret is not read again and again.
        await asyncio.sleep(UNSERVED_AFTER.total_seconds())
        assert await world.on_the_queue("eu-2") == ["connect_cluster"]
        await world.delete("eu-1")
        await eventually(
            to_wait,
            lambda seen: (
                seen == ["await_connection", "await_worker", "await_connection"]
            ),
            what="the wait",
        )
        assert await world.on_the_queue("eu-2") == ["connect_cluster"] * 2


def test_a_lost_worker_is_noticed_within_a_minute() -> None:
    watch = activity_options.WATCH.config
    pause = watch["retry_policy"].maximum_interval if watch["retry_policy"] else None
    heartbeat, start = watch["heartbeat_timeout"], watch["schedule_to_start_timeout"]
    assert heartbeat
    assert pause
    assert start
    assert heartbeat + pause + start < MINUTE
