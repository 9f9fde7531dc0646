"""A forced deletion ends within seconds on a real server, with no worker for the
cluster, or with its worker killed during a task.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from activities.messaging.search_attributes import identity_at_start
from activities.messaging.sending import ensure_scheduler
from api_types import names, queues
from api_types.messages.cluster_work import ClusterFacts, Connection
from api_types.messages.entities import ClusterChanged, Delete, Force, StartReplica
from api_types.queues import ClusterWork, cluster_queue
from api_types.sections.programs import WorkerSettings
from api_types.sections.temporal import QueueSettings
from api_types.settings import Settings
from tests.workflows.environment.harness import Json, eventually, message
from tests.workflows.environment.protocol_fleet import workers_here
from tests.workflows.environment.short_runs import address_of, server_with_short_runs

pytestmark = pytest.mark.testbed("shared")

QUEUE = "eu"
# From the force to the end. This is less than the 20 s after which an unserved queue is
# noticed, and the 30 s of a lost heartbeat.
SECONDS_MAX = 18

# A worker that dies while it executes a task.
KILLED_AT_WORK = """
import asyncio, os, signal, sys
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

@activity.defn(name=sys.argv[2])
async def work(order: dict) -> None:
    os.kill(os.getpid(), signal.SIGKILL)

async def main() -> None:
    await Worker(await Client.connect(sys.argv[1]), task_queue=sys.argv[3], activities=[work]).run()

asyncio.run(main())
"""


@dataclass
class OneReplica:
    """A replica that knows the connection of its cluster.

    Its tasks there wait for workers of another task queue.
    """

    client: Client
    handle: WorkflowHandle[Any, Any]

    async def delete(self) -> None:
        await self.handle.signal(
            "delete", Delete(request_id="delete", by="test").wire()
        )

    async def describe(self) -> Json:
        seen: Json = await self.handle.query("describe")
        return seen

    async def force(self, scope: str) -> None:
        order = {
            **Force(
                request_id=f"force/{scope}", by="test", reason="the cluster is lost"
            ).wire(),
            "scope": scope,
        }
        await self.handle.signal("force", order)

    async def at_step(self, number: int) -> Json:
        seen: Json = await eventually(
            self.describe,
            lambda seen: seen["status"].get("teardown", {}).get("step") == number,
            what=f"step {number}",
            within=SECONDS_MAX,
        )
        return seen

    async def forced_to_the_end(self) -> Json:
        """Force the whole deletion and wait for the end of the workflow."""
        await self.force("all")
        async with asyncio.timeout(SECONDS_MAX):
            await self.handle.result()
        return await self.describe()

    async def pending(self) -> list[str]:
        """Return the types of activities that are scheduled or running."""
        return [
            found.activity_type.name
            for found in (
                await self.handle.describe()
            ).raw_description.pending_activities
        ]

    async def lose_worker_in(self, activity: str, work: ClusterWork) -> None:
        """Start a worker that takes the next task of that type, and is killed by it."""
        arguments = (address_of(self.client), activity, cluster_queue(QUEUE, work))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", KILLED_AT_WORK, *arguments, env={**os.environ}
        )
        async with asyncio.timeout(60):
            await process.wait()


@asynccontextmanager
async def a_replica() -> AsyncIterator[OneReplica]:
    settings = Settings(
        queues=QueueSettings(serve=(queues.WORKFLOWS, queues.SCHEDULER)),
        worker=WorkerSettings(graceful_shutdown_seconds=0),
    )
    with ThreadPoolExecutor(4) as threads:
        async with server_with_short_runs(events=10_000) as client:
            workers = [
                asyncio.create_task(each.run())
                for each in workers_here(client, settings, threads).values()
            ]
            try:
                await ensure_scheduler(client)
                yield OneReplica(client, await started(client))
            finally:
                for each in workers:
                    each.cancel()
                await asyncio.gather(*workers, return_exceptions=True)


async def started(client: Client) -> WorkflowHandle[Any, Any]:
    """Start a replica that ran before and send it its cluster, in place of its
    deployment and its cluster.
    """
    start = StartReplica(
        uid="u",
        namespace="ml",
        name="qwen-1",
        deployment="qwen",
        deployment_uid="d",
        cluster="eu",
        index=0,
        generation=1,
        spec={"engines": [{"name": "main"}]},
        restarted=True,
    )
    handle = await client.start_workflow(
        "ModelReplica",
        {"start": start.wire()},
        id=names.workflow_id("ModelReplica", "ml", "qwen-1"),
        task_queue=queues.WORKFLOWS,
        **identity_at_start(
            "ModelReplica", "ml", "qwen-1", cluster="eu", deployment="qwen"
        ),
    )
    connection = Connection(
        cluster="eu", namespace="modelplane-system", name="eu", task_queue=QUEUE
    )
    facts = ClusterFacts(drain_seconds=0)
    changed = ClusterChanged(
        name="eu",
        uid="c",
        sequence=1,
        connected=True,
        connection=connection,
        facts=facts,
    )
    await handle.signal("cluster_changed", changed.wire())
    return handle


async def test_a_fully_forced_deletion_ends_without_a_worker_for_the_cluster() -> None:
    async with a_replica() as replica:
        await replica.delete()
        await replica.at_step(3)
        seen = await replica.forced_to_the_end()
        assert [left["kind"] for left in seen["status"]["leftBehind"]] == ["label"]


async def test_a_forced_step_ends_without_a_worker_for_the_cluster() -> None:
    async with a_replica() as replica:
        await replica.delete()
        await replica.at_step(3)
        await replica.force("step")
        seen = await replica.at_step(4)
        assert seen["status"]["teardown"]["steps"][2]["state"] == "skipped"
        assert "step 4 of 12" in message(seen, "Deleting")


async def test_a_fully_forced_deletion_ends_although_the_worker_was_killed_in_a_step() -> (
    None
):
    async with a_replica() as replica:
        await replica.delete()
        await replica.at_step(3)
        await replica.lose_worker_in("teardown_replica_step", ClusterWork.TEARDOWN)
        assert await replica.pending() == ["teardown_replica_step"]
        await replica.forced_to_the_end()


async def test_a_fully_forced_deletion_ends_although_the_worker_was_killed_in_the_apply() -> (
    None
):
    async with a_replica() as replica:
        await replica.lose_worker_in("apply_replica", ClusterWork.APPLY)
        await replica.delete()
        await eventually(
            replica.describe,
            lambda seen: bool(seen["metadata"].get("deletionTimestamp")),
            what="the deletion",
        )
        assert await replica.pending() == ["apply_replica"]
        await replica.forced_to_the_end()
