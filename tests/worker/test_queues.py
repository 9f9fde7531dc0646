"""Each class of cluster work has its own slots, on a real Temporal server.

Clusters are stubs.
"""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

import worker
from api_types import queues
from api_types.sections.programs import WorkerSettings
from api_types.sections.temporal import QueueSettings
from api_types.settings import Settings
from tests.environment.idle_clusters import IdlePool
from tests.worker.queue_load import (
    LOAD_QUEUE,
    QueueLoad,
    completed,
    start_load,
    watchers,
    work_of,
)
from tests.workflows.environment.harness import eventually
from tests.workflows.environment.short_runs import server_with_short_runs

pytestmark = pytest.mark.testbed("shared")

CLUSTERS = [f"c{number}" for number in range(300)]


@asynccontextmanager
async def served_here(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A server, a worker for clusters with default limits, and a worker for test
    workflows.
    """
    monkeypatch.setattr(worker, "KubernetesPool", IdlePool)
    settings = Settings(
        queues=QueueSettings(serve=(queues.CLUSTERS,)),
        worker=WorkerSettings(graceful_shutdown_seconds=0),
    )
    async with (
        server_with_short_runs(events=10_000) as client,
        AsyncExitStack() as stack,
    ):
        threads = stack.enter_context(ThreadPoolExecutor(1))
        for each in worker.build_workers(
            client, settings, worker.build_activities(settings), threads
        ).values():
            await stack.enter_async_context(each)
        await stack.enter_async_context(
            Worker(client, task_queue=LOAD_QUEUE, workflows=[QueueLoad])
        )
        yield client


async def test_a_worker_that_watches_300_clusters_still_connects_applies_and_deletes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task without a slot would wait until the watches end, which is never."""
    async with served_here(monkeypatch) as client:
        load = await start_load(client, CLUSTERS)
        watched: set[str] = set()

        async def not_watched() -> set[str]:
            # Not all at once: on a busy machine some of 300 heartbeats would be late,
            # and their watches would restart. Descriptions take time of the worker too.
            left = {each: load[each] for each in CLUSTERS if each not in watched}
            watched.update(await watchers(left))
            return {*CLUSTERS} - watched

        await eventually(
            not_watched, lambda missing: not missing, what="a watch of every cluster"
        )
        for cluster in CLUSTERS[:5]:
            await load[cluster].signal(QueueLoad.work)
        await eventually(
            lambda: completed(load, CLUSTERS[:5]),
            lambda done: done == 5,
            what="the work on five clusters",
        )
        for cluster in CLUSTERS[:5]:
            done = await work_of(load[cluster])
            assert done == {"connect_cluster", "apply_replica", "teardown_replica_step"}
