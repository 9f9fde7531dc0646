"""The control plane of a cluster stops and is back a minute later, in the middle of a rollout and of a teardown."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from testbed.process.processes import ProcessFiles
from testbed.testbed import Testbed
from tests.workflows.environment.harness import ControlPlane, Json
from tests.workflows.environment.one_cluster import CLUSTER, a_tenant, clean_up, here, says_unreachable, the_replica, went_on

pytestmark = pytest.mark.testbed

OUTAGE_SECONDS = 60.0


# The controllers stop with their server, as on a real control plane; left running they take a minute to reconnect.
PARTS = tuple(f"{CLUSTER}.{part}" for part in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "lws"))


@asynccontextmanager
async def without_control_plane(owner: Testbed, plane: ControlPlane) -> AsyncIterator[None]:
    """Stop the cluster's control plane, and start the same one again after the body, but not before the outage is over."""
    specs = ProcessFiles(plane.running.home).specs()
    for part in reversed(PARTS):
        await asyncio.to_thread(owner.stop_process, part)
    over = asyncio.create_task(asyncio.sleep(OUTAGE_SECONDS))
    try:
        yield
        await over
    finally:
        for part in PARTS:
            await asyncio.to_thread(owner.start_process, part, list(specs[part].argv), dict(specs[part].environment))


def with_slow_pods(document: Json) -> Json:
    """Have the pods take their time to end, so that the outage begins before they are gone."""
    (engine,) = document["spec"]["template"]["spec"]["engines"]
    engine["members"][0]["template"]["metadata"] = {"annotations": {"testbed.modelplane.ai/delete-after": "8s"}}
    return document


async def test_an_api_server_that_is_down_for_a_minute_during_a_rollout_and_a_teardown_costs_only_time(
    plane: ControlPlane, testbed_owner: Testbed
) -> None:
    namespace = a_tenant()
    await plane.apply(here("rolling", namespace))
    await plane.apply(with_slow_pods(here("leaving", namespace)))
    await plane.ready("ModelDeployment", "rolling", namespace)
    await plane.ready("ModelDeployment", "leaving", namespace)
    rolling, leaving = await the_replica(plane, "rolling", namespace), await the_replica(plane, "leaving", namespace)
    # Both are under way when the server stops.
    await plane.apply(here("rolling", namespace, image="registry.example/engine:2"))
    await plane.delete("ModelDeployment", "leaving", namespace)
    async with without_control_plane(testbed_owner, plane):
        # A rollout that was applied in time would have nothing to say; the next one cannot be.
        await plane.apply(here("rolling", namespace, image="registry.example/engine:3"))
        await says_unreachable(plane, namespace, rolling, leaving)
    await went_on(plane, namespace, "registry.example/engine:3")
    await clean_up(plane, "rolling", namespace)
