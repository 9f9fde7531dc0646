"""Preempting a replica whose deployment is broken or deletes it slowly."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from temporalio import activity

from api_types import names
from api_types.messages.cluster_work import RunTeardownStep, TeardownStepResult
from tests.simulation.lives.virtual_plane import (
    VirtualPlane,
    on_a_virtual_loop,
    virtual_plane,
)
from tests.simulation.poisons import Poison
from tests.simulation.server import HISTORY_EVENTS
from tests.workflows.environment.harness import Json, a_deployment
from tests.workflows.environment.simulated_clusters import (
    SimulatedClusters,
    a_class,
    a_cluster,
)
from workflows.fleet_scheduler.cache.scheduler_cache import UNANSWERED_MS

HERE, THERE = "eu", "us"
VICTIM = names.workflow_id("ModelDeployment", "ml", "victim")
DRAIN_SECONDS = 16.0
AHEAD_SECONDS = 3 * 24 * 3600.0
TEAMS = {"top": "team", "other": "other", "victim": "ml"}
"""The namespaces of the deployments."""


class Slow(SimulatedClusters):
    """Clusters that take `seconds` to delete a replica."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds

    @activity.defn
    async def teardown_replica_step(self, order: RunTeardownStep) -> TeardownStepResult:
        del order
        ends = asyncio.get_running_loop().time() + self.seconds
        while asyncio.get_running_loop().time() < ends:
            activity.heartbeat()
            await asyncio.sleep(10.0)
        return TeardownStepResult()


def a_model(name: str, cluster: str = "") -> Json:
    """Return a deployment that needs a whole node.

    Without a cluster, it may preempt others.
    """
    match = {"home": cluster} if cluster else {}
    document = a_deployment(
        name, TEAMS[name], gpus=8, clusterSelector={"matchLabels": match}
    )
    if not cluster:
        scheduling = {"priorityClassName": "high", "preemptionPolicy": "LowerPriority"}
        document["spec"]["scheduling"] = scheduling
    return document


@asynccontextmanager
async def full_fleet(clusters: Slow) -> AsyncIterator[VirtualPlane]:
    """Start two clusters of one node each, used by `other` and `victim`.

    The younger one is preempted first.
    """
    async with virtual_plane(clusters) as plane:
        await plane.apply(a_class())
        for name in (HERE, THERE):
            document = a_cluster(name, nodes=1)
            document["metadata"]["labels"] = {"home": name}
            await plane.apply(document)
            await plane.ready("InferenceCluster", name)
        scheduler = plane.client.get_workflow_handle(names.FLEET_SCHEDULER_ID)
        await scheduler.signal(
            "set_policy", {"policy": {"priorityClasses": {"high": 9}}}
        )
        for name, cluster in (("other", THERE), ("victim", HERE)):
            await plane.apply(a_model(name, cluster))
            await plane.ready("ModelDeployment", name, TEAMS[name])
            await asyncio.sleep(1.0)
        yield plane


async def placed(plane: VirtualPlane, name: str) -> list[str]:
    seen = await plane.describe("ModelDeployment", name, TEAMS[name])
    return [each["cluster"] for each in seen["status"]["placements"]]


async def events(plane: VirtualPlane) -> set[str]:
    scheduler = await plane.scheduler("describe")
    return {event["reason"] for event in scheduler["status"]["events"]}


@pytest.mark.parametrize(
    "poison", [Poison.FAILING, Poison.FULL], ids=lambda each: each.value
)
@on_a_virtual_loop
async def test_another_deployment_is_preempted_instead_of_a_broken_one(
    poison: Poison,
) -> None:
    async with full_fleet(Slow()) as plane:
        plane.world.server.poisons[VICTIM] = poison
        begun = plane.world.clock.seconds()
        await plane.apply(a_model("top"))
        await plane.ready("ModelDeployment", "top", "team")
        took = plane.world.clock.seconds() - begun
        assert took < UNANSWERED_MS / 1000 + DRAIN_SECONDS + 5.0
        assert (await placed(plane, "top"), await placed(plane, "other")) == (
            [THERE],
            [],
        )
        assert "PreemptionUnanswered" in await events(plane)
        top = await plane.describe("ModelDeployment", "top", "team")
        dropped = [
            each
            for each in top["status"]["events"]
            if each["reason"] == "PlacementDropped"
        ]
        assert [
            "a deployment of another namespace" in each["message"] for each in dropped
        ] == [True]
        # It is repaired, and learns of its eviction. The node is free by then, and its
        # replica is placed again.
        plane.world.server.poisons.clear()
        await plane.until(
            "ModelDeployment",
            "victim",
            lambda seen: any(
                event["reason"] == "ReplicaDeleting"
                for event in seen["status"]["events"]
            ),
            "ml",
        )
        await plane.ready("ModelDeployment", "victim", "ml")
        assert await placed(plane, "victim") == [HERE]
        assert await plane.scheduler("audit") == []


@on_a_virtual_loop
async def test_another_deployment_is_preempted_although_the_clock_was_set_back() -> (
    None
):
    """The wait begins while the clock is days ahead, and ends in another run."""
    async with full_fleet(Slow()) as plane:
        clock, server = plane.world.clock, plane.world.server
        clock.step(AHEAD_SECONDS)
        server.poisons[VICTIM] = Poison.FAILING
        begun = clock.seconds()
        await plane.apply(a_model("top"))
        await asyncio.sleep(5.0)
        clock.step(-AHEAD_SECONDS)
        server.events_max = 1
        scheduler = plane.client.get_workflow_handle(names.FLEET_SCHEDULER_ID)
        await scheduler.signal(
            "set_policy", {"policy": {"priorityClasses": {"high": 8}}}
        )
        await asyncio.sleep(5.0)
        server.events_max = HISTORY_EVENTS
        assert len(server.executions[names.FLEET_SCHEDULER_ID].runs) > 1
        await plane.ready("ModelDeployment", "top", "team")
        took = clock.seconds() - begun
        assert took < UNANSWERED_MS / 1000 + DRAIN_SECONDS + 15.0


@on_a_virtual_loop
async def test_a_deployment_that_deletes_slowly_is_waited_for() -> None:
    teardown = 2 * UNANSWERED_MS / 1000
    async with full_fleet(Slow(teardown)) as plane:
        await plane.apply(a_model("top"))
        await plane.ready("ModelDeployment", "top", "team", within=3 * teardown)
        assert (await placed(plane, "top"), await placed(plane, "other")) == (
            [HERE],
            [THERE],
        )
        assert "PreemptionUnanswered" not in await events(plane)
