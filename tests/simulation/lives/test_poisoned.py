"""A broken object does not delay other objects: each kind is broken in each way.

A team applies, scales, moves and deletes a model, connects a cluster, and deletes it.
Then an object of another team, or another cluster, breaks, and the team repeats
everything. No step takes longer than before, and each has the same outcome.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from temporalio import workflow

from activities.messaging.querying import QUICK_SECONDS, QUIET_SECONDS, SLOT_SECONDS
from activities.messaging.sending import ensure_upgrades
from api_types import labels, names
from api_types.messages.signals import STACK_UPGRADES, StackUpgradesSignals
from api_types.messages.upgrades import UpgradeRequest
from api_types.taints import with_taint
from tests.activities.clouds.builders import G6, L4, a_pool, an_eks_pool
from tests.simulation.lives.virtual_plane import VirtualPlane, on_a_virtual_loop, virtual_plane
from tests.simulation.poisons import Poison
from tests.workflows.cloud_cluster.at_cloud import AtCloud
from tests.workflows.cloud_cluster.control_plane import CloudCalls
from tests.workflows.environment.harness import Json, a_cache, a_deployment, condition
from tests.workflows.environment.simulated_clusters import API_VERSION, a_class, a_cluster
from tests.workflows.environment.simulated_control import (
    SimulatedControl,
    a_gateway,
    a_service,
    an_endpoint,
    selecting,
)
from workflows import registry
from workflows.fleet_scheduler.cache.state import HOLDS_OTHERS_MS
from workflows.model_cache.clusters import SURVEYS

BROKEN, TEAM = "broken", "team"
"""The namespaces of the broken objects, and of the team that must not be affected."""
SHARED, SPARE, LONE, NEW, CLOUD = "shared", "spare", "lone", "new", "prod"
"""The clusters: `shared` runs models of both teams and is drained, `lone` breaks, `new` comes."""
CLASS, ODD = "h100-8x", "odd"
TIER, HOME = "tier", "home"
"""The labels of clusters. Several have a tier, and each has a home of its own."""
PROVIDERS = {"GKE": ("europe-west4", L4, a_pool()), "EKS": ("us-east-2", G6, an_eks_pool())}
LOOK_SECONDS = 0.1
SETTLED_SECONDS = 5.0
LONGER_SECONDS_MAX = 1.0
"""Calls take up to 0.2 seconds, and a directory collects changes for half a second."""
SURVEY_SECONDS = QUICK_SECONDS + SLOT_SECONDS
"""A cache waits this long for a survey of a cluster that does not answer."""
CHAT = names.workflow_id("ModelDeployment", BROKEN, "chat")
LIMIT_SECONDS = 900.0


class Fleet(AtCloud, SimulatedControl):
    """The activities on clusters, on the control cluster, and at a cloud."""

    def __init__(self, source: str) -> None:
        SimulatedControl.__init__(self)
        self.cloud = CloudCalls(source)
        self.emptied = []
        self.holding = []


def in_tier(tier: str, cluster: Json, *odd: str) -> Json:
    """Return a cluster with a label, and with pools of further classes."""
    cluster["metadata"]["labels"] = {TIER: tier, HOME: cluster["metadata"]["name"]}
    pools = [{"name": name, "className": name, "nodeCount": 2} for name in odd]
    cluster["spec"]["nodePools"] += pools
    return cluster


def a_model(name: str, namespace: str, **match: str) -> Json:
    return a_deployment(name, namespace, clusterSelector={"matchLabels": match})


def at_cloud(source: str) -> list[Json]:
    region, provisioning, pool = PROVIDERS[source]
    shape = a_class(pool["className"])
    shape["spec"]["provisioning"] = provisioning
    shape["spec"]["devices"][0]["count"] = 1
    cluster = {"source": source, source.lower(): {"region": region}}
    spec = {"cluster": cluster, "nodePools": [pool]}
    metadata = {"name": CLOUD, "annotations": {labels.STACK: "external"}}
    document = {"apiVersion": API_VERSION, "kind": "InferenceCluster"}
    return [shape, {**document, "metadata": metadata, "spec": spec}]


@dataclass
class Story:
    """The work of the team in one fleet."""

    plane: VirtualPlane
    fleet: Fleet
    documents: Sequence[Json] = ()

    async def begin(self, further: Sequence[Json]) -> None:
        """Create the objects of both teams, and wait until they are Ready."""
        self.documents = (
            a_class(CLASS),
            a_class(ODD),
            in_tier("both", a_cluster(SHARED), ODD),
            in_tier("both", a_cluster(SPARE)),
            a_gateway(),
            *further,
            a_model("chat", BROKEN, home=SHARED),
        )
        talk = a_service("talk", selecting({labels.DEPLOYMENT: "chat"}), namespace=TEAM)
        for document in (*self.documents, talk):
            await self.plane.apply(document)
        wanted = UpgradeRequest(cluster=SHARED, uid="u", sequence=1, turn=1, wanted=True)
        request = StackUpgradesSignals.REQUEST_UPGRADE.request(STACK_UPGRADES, wanted)
        await ensure_upgrades(self.plane.client, request)
        await self.settle()

    async def settle(self) -> None:
        """Wait until everything is Ready, and no message is in flight."""
        await self.until("settle", *map(self.is_ready, self.documents))
        await asyncio.sleep(SETTLED_SECONDS)

    async def lose_scheduler(self) -> None:
        """Terminate the scheduler.

        The next one has to read the accounts of all objects.
        """
        await self.plane.world.terminate(names.FLEET_SCHEDULER_ID, "rebuild")

    async def until(self, what: str, *goals: Callable[[], bool]) -> float:
        """Return the seconds until all goals are reached."""
        clock = self.plane.world.clock
        begun = clock.seconds()
        while not all(goal() for goal in goals):
            if clock.seconds() - begun > LIMIT_SECONDS:
                raise AssertionError(f"{what}: a goal is not reached")
            await asyncio.sleep(LOOK_SECONDS)
        return clock.seconds() - begun

    def seen(self, kind: str, name: str, namespace: str = "") -> Json:
        return self.plane.world.peek(names.workflow_id(kind, namespace, name), "describe") or {}

    def is_ready(self, document: Json) -> Callable[[], bool]:
        kind, meta = document["kind"], document["metadata"]
        name, namespace = meta["name"], meta.get("namespace", "")
        return lambda: condition(self.seen(kind, name, namespace), "Ready") == "True"

    def is_gone(self, kind: str, name: str, namespace: str = "") -> Callable[[], bool]:
        return self.is_closed(names.workflow_id(kind, namespace, name))

    def replicas(self, name: str) -> list[str]:
        """Return the ids of the replicas of a deployment of the team."""
        prefix = names.workflow_id("ModelReplica", TEAM, f"{name}-")
        found = [each for each in self.plane.world.server.executions if each.startswith(prefix)]
        assert found, f"{name} has no replica"
        return found

    def is_closed(self, workflow_id: str) -> Callable[[], bool]:
        return lambda: not self.plane.world.server.find(workflow_id).is_open

    def runs(self, name: str, count: int, *clusters: str) -> Callable[[], bool]:
        """Return whether a deployment has so many replicas that are ready, on these clusters."""

        def holds() -> bool:
            status = self.seen("ModelDeployment", name, TEAM).get("status", {})
            found = {each["cluster"] for each in status.get("placements", ())}
            counts = status.get("replicas", {})
            return (
                found <= set(clusters)
                and (counts.get("total"), counts.get("ready")) == (count,) * 2
            )

        return holds

    def routes(self, service: str, count: int) -> Callable[[], bool]:
        """Return whether the route of a service has so many endpoints."""

        def holds() -> bool:
            route = self.fleet.routes.get(service)
            found = [each for entry in route.entries for each in entry.endpoints] if route else []
            return len(found) == count

        return holds

    async def day(self, local: str = "") -> dict[str, float]:
        """Run all steps once; return the duration of each step in seconds."""
        plane, took = self.plane, dict[str, float]()

        async def step(name: str, do: Awaitable[Any], *goals: Callable[[], bool]) -> None:
            await do
            took[name] = await self.until(name, *goals)

        await step(
            "apply",
            plane.apply(a_model("chat", TEAM, tier="both")),
            self.runs("chat", 1, SHARED, SPARE),
            self.routes("talk", 1),
        )
        await step(
            "scale up",
            plane.scale("chat", TEAM, 4),
            self.runs("chat", 4, SHARED, SPARE),
            self.routes("talk", 4),
        )
        await step(
            "scale down",
            plane.scale("chat", TEAM, 2),
            self.runs("chat", 2, SHARED, SPARE),
            self.routes("talk", 2),
        )
        weights = a_cache("weights", TEAM, "example/model", match={TIER: "both"})
        await step("apply a cache", plane.apply(weights), self.is_ready(weights))
        shared, new = in_tier("both", a_cluster(SHARED), ODD), in_tier(NEW, a_cluster(NEW))
        await step("connect", plane.apply(new), self.is_ready(new))
        drained = {**shared, "spec": with_taint(shared["spec"])}
        await step("drain", plane.apply(drained), self.runs("chat", 2, SPARE))
        await plane.apply(shared)
        await step(
            "delete",
            plane.delete("ModelDeployment", "chat", TEAM),
            self.is_gone("ModelDeployment", "chat", TEAM),
            self.routes("talk", 0),
        )
        await step(
            "delete the cache",
            plane.delete("ModelCache", "weights", TEAM),
            self.is_gone("ModelCache", "weights", TEAM),
        )
        await step(
            "disconnect",
            plane.delete("InferenceCluster", NEW),
            self.is_gone("InferenceCluster", NEW),
        )
        if local:
            model = a_model("far", TEAM, tier=local)
            await step("apply there", plane.apply(model), self.runs("far", 1, local))
            await step("scale there", plane.scale("far", TEAM, 2), self.runs("far", 2, local))
            await step(
                "delete there",
                plane.delete("ModelDeployment", "far", TEAM),
                self.is_gone("ModelDeployment", "far", TEAM),
            )
        return took

    async def day_without_placements(self) -> dict[str, float]:
        """Run steps that place no replica; return the duration of each in seconds.

        The model of the team runs at the beginning.
        """
        plane, took = self.plane, dict[str, float]()

        async def step(name: str, do: Awaitable[Any], *goals: Callable[[], bool]) -> None:
            await do
            took[name] = await self.until(name, *goals)

        endpoint = an_endpoint("own", namespace=TEAM, app="own")
        service = a_service("walk", selecting({"app": "own"}), namespace=TEAM)
        await plane.apply(endpoint)
        await step("apply a service", plane.apply(service), self.routes("walk", 1))
        await step(
            "delete the service",
            plane.delete("ModelService", "walk", TEAM),
            self.is_gone("ModelService", "walk", TEAM),
        )
        await step(
            "delete the endpoint",
            plane.delete("ModelEndpoint", "own", TEAM),
            self.is_gone("ModelEndpoint", "own", TEAM),
        )
        weights = a_cache("weights", TEAM, "example/model", match={TIER: "both"})
        await step("apply a cache", plane.apply(weights), self.is_ready(weights))
        await step(
            "delete the cache",
            plane.delete("ModelCache", "weights", TEAM),
            self.is_gone("ModelCache", "weights", TEAM),
        )
        kind, own = a_class("own"), a_cluster("own")
        await plane.apply(kind)
        own["spec"]["nodePools"] = [{"name": "own", "className": "own", "nodeCount": 2}]
        await step("connect", plane.apply(own), self.is_ready(own))
        # The workflow of the model waits until the scheduler has released its nodes.
        await step(
            "delete the replicas",
            plane.delete("ModelDeployment", "chat", TEAM),
            self.routes("talk", 0),
            *map(self.is_closed, self.replicas("chat")),
        )
        return took


@dataclass(frozen=True)
class Row:
    """An object that breaks, and further documents for its fleet.

    Attributes:
        victim: how the ids of the workflows that break begin.
        there: the tier of the cluster that breaks.
        source: the cloud of the fleet.

    """

    kind: str
    victim: str
    documents: Sequence[Json] = ()
    there: str = ""
    source: str = "GKE"

    @property
    def id(self) -> str:
        """The name of its tests."""
        return f"{self.kind}-{self.source}" if self.kind == "CloudCluster" else self.kind

    def poisons(self, running: Iterable[str], poison: Poison) -> dict[str, Poison]:
        """Return the poisons by workflow id."""
        if self.kind == "Redelivery":
            # It runs while its receiver takes no signals.
            return {CHAT: Poison.FULL, self.victim: poison}
        found = [each for each in running if each.startswith(self.victim)]
        assert found, f"no {self.kind} runs"
        return dict.fromkeys(found, poison)


SPARE_ENDPOINT = an_endpoint("spare", namespace=BROKEN, app="spare")
ROWS = (
    Row("InferenceClass", names.workflow_id("InferenceClass", "", ODD)),
    Row(
        "InferenceCluster",
        names.workflow_id("InferenceCluster", "", LONE),
        (in_tier(LONE, a_cluster(LONE), ODD), a_model("far", BROKEN, tier=LONE)),
        there=LONE,
    ),
    Row("InferenceGateway", names.workflow_id("InferenceGateway", "", "default")),
    Row(
        "ModelCache",
        names.workflow_id("ModelCache", BROKEN, "weights"),
        (a_cache("weights", BROKEN, "example/model", match={TIER: "both"}),),
    ),
    Row("ModelDeployment", CHAT),
    Row("ModelReplica", names.workflow_id("ModelReplica", BROKEN, "chat-")),
    Row(
        "ModelService",
        names.workflow_id("ModelService", BROKEN, "old"),
        (SPARE_ENDPOINT, a_service("old", selecting({"app": "spare"}), namespace=BROKEN)),
    ),
    Row("ModelEndpoint", names.workflow_id("ModelEndpoint", BROKEN, "spare"), (SPARE_ENDPOINT,)),
    Row("EndpointDirectory", names.endpoint_directory_id(BROKEN)),
    Row("StackUpgrades", names.STACK_UPGRADES_ID),
    Row("CloudCluster", "cloud/", at_cloud("GKE")),
    Row("CloudCluster", "cloud/", at_cloud("EKS"), source="EKS"),
)
REDELIVERY = Row("Redelivery", names.redelivery_id(CHAT))
EVERY = (*ROWS, REDELIVERY)
READ_BY_REBUILDS = ("InferenceClass", "InferenceCluster", "ModelDeployment", "ModelReplica")
SERVES_ALL = {"FleetScheduler": "it decides each placement, also by quota and policy"}
"""Kinds with one object for all teams, and the reason that everyone depends on it."""


def test_every_kind_of_workflow_breaks() -> None:
    kinds = {definition(each) for each in registry.WORKFLOWS}
    assert {row.kind for row in EVERY} | SERVES_ALL.keys() == kinds


def definition(workflow_class: type) -> str:
    """Return the name of a kind of workflow."""
    return str(workflow._Definition.must_from_class(workflow_class).name)


async def broken(rows: Sequence[Row], poison: Poison, *, rebuilds: bool = False) -> None:
    """Compare a healthy day with a day on which some objects are broken.

    With `rebuilds`, the scheduler rebuilds its account before each day.
    """
    fleet = Fleet(rows[0].source)
    there = next((row.there for row in rows if row.there), "")
    if poison is Poison.UNREADABLE or rebuilds:
        # A replica reads the connection of its cluster, and a scheduler that rebuilds its account.
        there = ""
    async with virtual_plane(fleet, replays=len(rows) == 1) as plane:
        story = Story(plane, fleet)
        await story.begin([document for row in rows for document in row.documents])
        if rebuilds:
            await story.lose_scheduler()
        before = await story.day(there)
        await story.settle()
        server = plane.world.server
        for row in rows:
            server.poisons |= row.poisons(server.executions, poison)
        if rebuilds:
            await story.lose_scheduler()
        after = await story.day(there)
        assert server.poisons.keys() <= server.executions.keys()
    longer = {name: after[name] - before[name] for name in before}
    assert {k: more for k, more in longer.items() if more > allowed(k, rebuilds=rebuilds)} == {}


def allowed(step: str, *, rebuilds: bool) -> float:
    """Return the seconds by which a step may take longer than before."""
    if step == "apply a cache":
        return LONGER_SECONDS_MAX + SURVEYS * SURVEY_SECONDS
    if rebuilds and step == "apply":
        return LONGER_SECONDS_MAX + QUIET_SECONDS + SLOT_SECONDS
    if rebuilds and step in ("delete", "disconnect"):
        return HOLDS_OTHERS_MS / 1000
    return LONGER_SECONDS_MAX


# The other poisons of each kind would triple the duration.
ONE_BY_ONE = [
    pytest.param(
        each,
        id=each.value,
        marks=pytest.mark.long if each is Poison.FAILING else pytest.mark.soak,
    )
    for each in Poison
]


@pytest.mark.parametrize("poison", Poison, ids=lambda each: each.value)
@on_a_virtual_loop
async def test_no_object_waits_for_broken_neighbours_of_all_kinds(poison: Poison) -> None:
    await broken([row for row in ROWS if row.source == "GKE"], poison)


@on_a_virtual_loop
async def test_a_redelivery_that_takes_no_signals_blocks_no_sender() -> None:
    await broken([REDELIVERY], Poison.FULL)


@pytest.mark.parametrize("poison", ONE_BY_ONE)
@pytest.mark.parametrize("row", EVERY, ids=lambda row: row.id)
@on_a_virtual_loop
async def test_no_object_waits_for_a_broken_neighbour(row: Row, poison: Poison) -> None:
    await broken([row], poison)


@pytest.mark.parametrize("poison", ONE_BY_ONE)
@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.kind in READ_BY_REBUILDS], ids=lambda row: row.id
)
@on_a_virtual_loop
async def test_a_rebuilding_scheduler_does_not_block_callers_for_ever(
    row: Row, poison: Poison
) -> None:
    await broken([row], poison, rebuilds=True)


@pytest.mark.parametrize("poison", Poison, ids=lambda each: each.value)
@on_a_virtual_loop
async def test_a_broken_scheduler_delays_only_placements(poison: Poison) -> None:
    took = []
    for each in (None, poison):
        fleet = Fleet("GKE")
        async with virtual_plane(fleet, replays=False) as plane:
            story = Story(plane, fleet)
            await story.begin(())
            await plane.apply(a_model("chat", TEAM, tier="both"))
            await plane.scale("chat", TEAM, 2)
            goals = story.runs("chat", 2, SHARED, SPARE), story.routes("talk", 2)
            await story.until("run", *goals)
            await asyncio.sleep(SETTLED_SECONDS)
            if each is not None:
                plane.world.server.poisons[names.FLEET_SCHEDULER_ID] = each
            took.append(await story.day_without_placements())
    before, after = took
    longer = {name: after[name] - before[name] for name in before}
    assert {k: more for k, more in longer.items() if more > allowed(k, rebuilds=False)} == {}
