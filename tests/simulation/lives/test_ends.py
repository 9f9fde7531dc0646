"""Every workflow may end at any moment: an operator terminates it, cancels it, or resets it.

The objects of a fleet change all the time. In the middle of a change the workflow of one object
ends. Its owner applies a terminated object again. The fleet heals without further help.
"""

import asyncio
import copy
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from temporalio import workflow

from activities.messaging.sending import ensure_upgrades
from api_types import names
from api_types.messages.signals import STACK_UPGRADES, StackUpgradesSignals
from api_types.messages.upgrades import UpgradeRequest
from tests.simulation import manifests
from tests.simulation.lives.steady_fleet import CLUSTERS, SteadyFleet, in_virtual_time
from tests.simulation.lives.whole_fleet import (
    CACHE,
    ENDPOINT,
    LIMIT_SECONDS,
    MODEL,
    POOLS,
    SERVICE,
    WholeFleet,
    a_model,
)
from tests.workflows.environment.harness import Json
from workflows import registry

LANES = {
    "terminate": "long",
    "reset to the first task": "long",
    "reset": "soak",
    "cancel": "soak",
}
"""The kinds of end, and the marks of their tests on workflows of all kinds in one life."""
FEW_TASKS = 4
"""The number of tasks that a reset takes back."""
MOMENTS = (0.2, 3.0)
"""Seconds between the change and the end of the workflow."""
CLUSTER = "prod-eu"
HEALS_SECONDS = 1800.0
"""The fleet heals sooner than a resync would repeat messages, which is after an hour."""
HEAL_BY_RESYNC = ("EndpointDirectory", "Redelivery")
"""A directory loses reports of withdrawn endpoints, and a Redelivery its signals. Their senders
repeat them with their next resync."""
AT_CLOUD = "CloudCluster"
"""The kind that needs a fleet with a cloud, which costs several times as much."""
NODES = len(CLUSTERS) * sum(POOLS.values())
"""The model fills the fleet every other time, so that the test notices a node that was
promised twice.
"""
IMAGE_EVERY = 4
"""The number of changes after which the model gets another image."""
FULL_SECONDS = 120.0


@dataclass(frozen=True)
class Victim:
    """A kind of workflow, and how the ids of its workflows begin in the fleet."""

    kind: str
    prefix: str

    def __str__(self) -> str:
        return self.kind


def victims(namespace: str) -> Sequence[Victim]:
    """Return a victim of each kind of workflow."""
    chat = names.workflow_id("ModelDeployment", namespace, MODEL)
    return (
        Victim("FleetScheduler", names.FLEET_SCHEDULER_ID),
        Victim("InferenceClass", names.workflow_id("InferenceClass", "", "h100")),
        Victim("InferenceCluster", names.workflow_id("InferenceCluster", "", CLUSTER)),
        Victim("InferenceGateway", names.workflow_id("InferenceGateway", "", "default")),
        Victim("ModelDeployment", chat),
        Victim("ModelReplica", names.workflow_id("ModelReplica", namespace, MODEL)),
        Victim("ModelCache", names.workflow_id("ModelCache", namespace, CACHE)),
        Victim("ModelService", names.workflow_id("ModelService", namespace, SERVICE)),
        Victim("ModelEndpoint", names.workflow_id("ModelEndpoint", namespace, ENDPOINT)),
        Victim("EndpointDirectory", names.endpoint_directory_id(namespace)),
        Victim("StackUpgrades", names.STACK_UPGRADES_ID),
        Victim("Redelivery", names.redelivery_id(chat)),
        Victim(AT_CLOUD, "cloud/"),
    )


KINDS = [each.kind for each in victims("") if each.kind != AT_CLOUD]


def test_every_kind_of_workflow_ends() -> None:
    kinds = {workflow._Definition.must_from_class(each).name for each in registry.WORKFLOWS}
    assert {*KINDS, AT_CLOUD} == kinds


async def end(fleet: WholeFleet, workflow_id: str, how: str) -> None:
    """End a workflow in one way."""
    run = fleet.world.server.find(workflow_id)
    if how == "terminate":
        await fleet.world.terminate(workflow_id, "an accident")
    elif how == "cancel":
        await fleet.plane.client.get_workflow_handle(workflow_id).cancel()
    else:
        last = len(run.recorded) - 1
        kept = 0 if how == "reset to the first task" else max(last - FEW_TASKS, 0)
        await fleet.world.reset(workflow_id, kept)


@dataclass
class Life:
    """The life of a fleet whose workflows end."""

    fleet: WholeFleet
    changes: int = 3
    at_cloud: Json = field(default_factory=dict)

    async def begin(self) -> None:
        if self.fleet.world.parts.google:
            self.at_cloud = manifests.a_cloud_cluster(self.fleet.world.source("cloud"))
            self.fleet.want(manifests.a_cloud_class())
            self.fleet.want(self.at_cloud)
        await self.fleet.begin()
        wanted = UpgradeRequest(cluster=CLUSTER, uid="u", sequence=1, turn=1, wanted=True)
        request = StackUpgradesSignals.REQUEST_UPGRADE.request(STACK_UPGRADES, wanted)
        client: Any = self.fleet.plane.client
        await ensure_upgrades(client, request)
        await self.fleet.plane.shown()

    async def change(self) -> None:
        """Scale the model.

        Some changes also set another image, which costs a rollout.
        """
        self.changes += 1
        count, image = NODES - self.changes % 2, self.changes // IMAGE_EVERY
        await self.fleet.apply(a_model(self.fleet.namespace, count, image))
        if self.at_cloud:
            document = copy.deepcopy(self.at_cloud)
            # A pool that shrinks would take replicas with it, long after the change.
            document["spec"]["nodePools"][0]["nodeCount"] = self.changes
            await self.fleet.apply(document)

    def _is_redelivered(self, victim: Victim) -> bool:
        """Keep the receiver full until it has a Redelivery.

        The receiver may continue as new before anybody sends it a signal, and the next
        run would accept signals.
        """
        run = self.fleet.world.server.find(names.receiver_of_redelivery(victim.prefix))
        run.full_until = self.fleet.world.clock.seconds() + FULL_SECONDS
        return bool(self.fleet.running(victim.prefix))

    async def strike(self, victim: Victim, how: str, moment: float) -> None:
        """End a workflow in the middle of a change."""
        fleet = self.fleet
        if victim.kind == "Redelivery":
            await self.change()
            await fleet.until("a redelivery", lambda: self._is_redelivered(victim))
        else:
            await self.change()
        await asyncio.sleep(moment)
        found = fleet.running(victim.prefix)
        assert found, f"no {victim.kind} runs"
        await end(fleet, found[0], how)
        await fleet.plane.shown()
        await fleet.apply_again()


async def ended(
    plane: SteadyFleet, namespace: str, ends: Iterable[tuple[str, str]], moment: float
) -> None:
    """End workflows one after the other, each of a kind in one way, and delete everything."""
    life = Life(WholeFleet(plane, namespace))
    await life.begin()
    found = {each.kind: each for each in victims(namespace)}
    for kind, how in ends:
        await life.strike(found[kind], how, moment)
        waits_for_resync = how == "terminate" and kind in HEAL_BY_RESYNC
        await life.fleet.ready(LIMIT_SECONDS if waits_for_resync else HEALS_SECONDS)
    await life.fleet.at_rest()
    await life.change()
    await life.fleet.ready()
    await life.fleet.delete_everything()


@in_virtual_time
async def test_a_fleet_heals_when_a_cluster_is_reset_and_a_replica_terminated(
    plane: SteadyFleet, namespace: str
) -> None:
    """The cluster has two watches for a while, and the replica has lost the report of its cache."""
    found = [("InferenceCluster", "reset to the first task"), ("ModelReplica", "terminate")]
    await ended(plane, namespace, found, MOMENTS[0])


@pytest.mark.parametrize(
    "how", [pytest.param(each, marks=getattr(pytest.mark, lane)) for each, lane in LANES.items()]
)
@in_virtual_time
async def test_a_fleet_heals_when_workflows_of_all_kinds_end(
    plane: SteadyFleet, namespace: str, how: str
) -> None:
    await ended(plane, namespace, [(kind, how) for kind in KINDS], MOMENTS[0])


@pytest.mark.soak
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("how", LANES)
@pytest.mark.parametrize("kind", KINDS)
@in_virtual_time
async def test_a_fleet_heals_when_a_workflow_ends(
    plane: SteadyFleet, namespace: str, kind: str, how: str, moment: float
) -> None:
    await ended(plane, namespace, [(kind, how)], moment)


@pytest.mark.soak
@pytest.mark.parametrize("how", LANES)
@functools.partial(in_virtual_time, size="clouds")
async def test_a_fleet_heals_when_a_workflow_at_a_cloud_ends(
    plane: SteadyFleet, namespace: str, how: str
) -> None:
    await ended(plane, namespace, [(AT_CLOUD, how)], MOMENTS[0])
