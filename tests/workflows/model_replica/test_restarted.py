"""A replica whose workflow was terminated and that is deleted: its objects are deleted, and only then its nodes are free."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from tests.workflows.environment.harness import ControlPlane, message
from tests.workflows.environment.one_cluster import (
    HOLD,
    a_tenant,
    clean_up,
    held,
    here,
    nothing_is_left,
    set_finalizers,
    the_replica,
    workload,
)
from tests.workflows.environment.together import together

pytestmark = pytest.mark.testbed


async def a_serving_replica(plane: ControlPlane, name: str, namespace: str) -> str:
    await plane.apply(here(name, namespace))
    await plane.ready("ModelDeployment", name, namespace)
    return await the_replica(plane, name, namespace)


async def run_of(plane: ControlPlane, replica: str, namespace: str) -> str:
    return (await plane.handle("ModelReplica", replica, namespace).describe()).run_id


async def terminated_and_deleted_at_once(plane: ControlPlane) -> None:
    namespace = a_tenant()
    replica = await a_serving_replica(plane, "deleted", namespace)
    await plane.handle("ModelReplica", replica, namespace).terminate("an accident")
    await clean_up(plane, "deleted", namespace)


async def terminated_in_its_teardown(plane: ControlPlane) -> None:
    namespace = a_tenant()
    replica, path = await a_serving_replica(plane, "leaving", namespace), workload(plane, namespace)
    set_finalizers(plane, path, HOLD)
    await plane.delete("ModelDeployment", "leaving", namespace)
    await plane.until("ModelReplica", replica, lambda seen: HOLD in message(seen, "Deleting"), namespace)
    first = await run_of(plane, replica, namespace)
    await plane.handle("ModelReplica", replica, namespace).terminate("an accident")
    await plane.until("ModelReplica", replica, lambda seen: HOLD in message(seen, "Deleting"), namespace)
    assert await run_of(plane, replica, namespace) != first
    assert len(await held(plane, namespace)) == 1
    set_finalizers(plane, path)
    await plane.gone("ModelDeployment", "leaving", namespace)
    await nothing_is_left(plane, namespace)


TERMINATED = {
    "it is deleted before it applied anything again, and everything is deleted": terminated_and_deleted_at_once,
    "it is terminated in its teardown, which goes on": terminated_in_its_teardown,
}


@pytest.fixture(scope="module")
async def stories(plane: ControlPlane) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """All of them concurrently, each in a namespace of its own."""
    async with together(plane, {name: partial(scenario, plane) for name, scenario in TERMINATED.items()}) as started:
        yield started


@pytest.mark.parametrize("name", TERMINATED)
async def test_a_replica_that_was_terminated(stories: dict[str, asyncio.Task[None]], name: str) -> None:
    await stories[name]
