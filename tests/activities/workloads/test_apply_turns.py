"""Limits of concurrent applies on one cluster.

Other applies wait their turn with heartbeats, and can be cancelled.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from activities.caches.activities import CacheActivities
from activities.clients.secrets.directory import SecretDirectory
from activities.render.inputs.settings import RenderSettings
from activities.workloads.activities import WorkloadActivities
from api_types.messages.caches import ApplyCache
from tests.activities.environment.asking import asked_by
from tests.activities.environment.cluster_under_test import eventually
from tests.activities.workloads.test_hanging_cluster import HttpPool, an_order
from tests.environment.api_server import ApiServer, api_server

Heartbeats = list[Any]
Apply = Callable[[HttpPool, Path, Heartbeats], Coroutine[Any, Any, Any]]


def apply_replica(
    pool: HttpPool, folder: Path, beats: Heartbeats, number: int = 1
) -> Coroutine[Any, Any, Any]:
    order = an_order("a", number)
    environment = asked_by(f"modelreplica/{order.namespace}/{order.name}")
    environment.on_heartbeat = lambda *details: beats.append(details)
    return environment.run(
        WorkloadActivities(
            pool, SecretDirectory(folder), RenderSettings()
        ).apply_replica,
        order,
    )


def apply_cache(
    pool: HttpPool, folder: Path, beats: Heartbeats
) -> Coroutine[Any, Any, Any]:
    order = ApplyCache(
        connection=an_order("a", 1).connection,
        cluster="a",
        namespace="ml",
        name="weights",
        uid="uid-1",
        generation=1,
        spec={"source": "HuggingFace", "huggingFace": {"repo": "a/b", "sizeGiB": 10}},
        storage_class_name="fast",
    )
    environment = asked_by("modelcache/ml/weights")
    environment.on_heartbeat = lambda *details: beats.append(details)
    return environment.run(
        CacheActivities(pool, SecretDirectory(folder), RenderSettings()).apply_cache,
        order,
    )


async def a_pool(
    stack: AsyncExitStack, applies_at_once: int
) -> tuple[HttpPool, ApiServer]:
    server = await stack.enter_async_context(api_server())
    pool = HttpPool({"a": server}, applies_at_once)
    stack.push_async_callback(pool.close)
    return pool, server


@pytest.mark.parametrize(
    "apply", [apply_replica, apply_cache], ids=["a replica", "a cache"]
)
async def test_an_apply_waits_for_its_turn_with_heartbeats_and_without_requests(
    tmp_path: Path, apply: Apply
) -> None:
    async with AsyncExitStack() as stack:
        pool, server = await a_pool(stack, 1)
        beats: Heartbeats = []
        async with pool.clients["a"].applying():
            waiting = asyncio.create_task(apply(pool, tmp_path, beats))
            await eventually(lambda: beats)
            await asyncio.sleep(0.2)
            assert (waiting.done(), server.requests) == (False, 0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        # Its place in the queue is gone too.
        assert (await apply_replica(pool, tmp_path, beats)).inventory


async def test_all_waiting_applies_run_in_the_end(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        pool, _ = await a_pool(stack, 2)
        applied = await asyncio.gather(
            *(apply_replica(pool, tmp_path, [], number) for number in range(8))
        )
        assert all(each.inventory for each in applied)
