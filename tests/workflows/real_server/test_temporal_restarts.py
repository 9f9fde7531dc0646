"""Temporal stops and restarts over the same data while objects change.

That causes only a delay.
"""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from api_types import labels, queues
from api_types.clock import utc_now
from tests.random_cases import generator
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_deployment,
    condition,
    eventually,
    worker_process,
)
from tests.workflows.environment.protocol_fleet import ProtocolFleet, WorkerApart
from tests.workflows.environment.replaying import replay_all
from tests.workflows.environment.simulated_clusters import a_class, a_cluster, plane_of
from tests.workflows.environment.simulated_control import a_gateway, a_service, selecting
from tests.workflows.real_server.recording_clusters import Held, RecordingClusters
from tests.workflows.real_server.temporal_servers import TemporalServer, a_server

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.timeout(1200)]

NAMESPACE = "ml"
# Replicas of a deployment. A deployment that is created during the outage has one more.
REPLICAS = 2
HOME, WEST, EAST = "home", "west", "east"
DRAINED = {"key": labels.MAINTENANCE, "effect": "NoExecute"}


@dataclass(frozen=True)
class Stop:
    """How the server stops, how many seconds after the requests, and for how long."""

    signal: signal.Signals
    after: float
    down: float = 1.0


@dataclass
class Life:
    """A fleet whose Temporal server may stop at any time.

    Two clusters, drained in turn, have the replicas of `moving`. A third cluster has
    all others.
    """

    server: TemporalServer
    plane: ControlPlane
    clusters: RecordingClusters
    worker: WorkerApart
    round: int = 0
    drained: str = EAST
    started: Counter[str] = field(default_factory=Counter)

    @property
    def image(self) -> str:
        return f"registry.example/engine:{self.round}"

    def deployment(self, name: str, replicas: int = REPLICAS, image: str = "") -> Json:
        """Return a deployment with the image of this round, unless another is named."""
        area = {"area": "two" if name == "moving" else "one"}
        return a_deployment(
            name,
            NAMESPACE,
            replicas=replicas,
            image=image or self.image,
            clusterSelector={"matchLabels": area},
        )

    async def begin(self) -> None:
        """Apply the objects that every round changes."""
        await self.plane.apply(a_gateway())
        await self.plane.apply(a_class())
        for name in (HOME, WEST, EAST):
            await self.plane.apply(self.cluster(name))
        for name in (HOME, WEST, EAST):
            await self.plane.ready("InferenceCluster", name)
        await self.plane.apply(
            a_service("all", selecting({labels.DEPLOYMENT: "rolling"}), namespace=NAMESPACE)
        )
        for name in ("rolling", "moving"):
            await self.plane.apply(self.deployment(name))

    def cluster(self, name: str) -> Json:
        """Return a cluster, tainted while it is drained."""
        document = a_cluster(name, nodes=20)
        document["metadata"]["labels"] = {"area": "one" if name == HOME else "two"}
        if name == self.drained:
            document["spec"]["taints"] = [DRAINED]
        return document

    async def interrupt(self, stop: Stop) -> None:
        """Create, roll out, drain and delete at once, stop the server, and wait for all four."""
        leaving, created = f"leaving-{self.round}", f"created-{self.round}"
        await self.plane.apply(self.deployment(leaving))
        before = {
            name: await self.settled(name, REPLICAS, self.image)
            for name in ("rolling", "moving", leaving)
        }
        self.round += 1
        self.drained = EAST if self.drained == WEST else WEST
        await self.plane.apply(self.deployment("rolling"))
        await self.plane.delete("ModelDeployment", leaving, NAMESPACE)
        for name in (WEST, EAST):
            await self.plane.apply(self.cluster(name))
        await self.plane.apply(self.deployment(created, REPLICAS + 1))
        await asyncio.sleep(stop.after)
        await asyncio.to_thread(self.server.end, stop.signal)
        await asyncio.sleep(stop.down)
        self.server.start()
        await self.server.client()
        await self.plane.gone("ModelDeployment", leaving, NAMESPACE)
        old = f"registry.example/engine:{self.round - 1}"
        after = {
            "rolling": await self.settled("rolling", REPLICAS, self.image),
            "moving": await self.settled("moving", REPLICAS, old),
            created: await self.settled(created, REPLICAS + 1, self.image),
        }
        assert after["rolling"] == before["rolling"], "a rollout keeps its replicas"
        assert not after["moving"].keys() & before["moving"].keys()
        await self.nothing_else(after)
        if not self.started:
            self.started.update([*before["rolling"], *before["moving"]])
        self.started.update([*before[leaving], *after["moving"], *after[created]])
        await self.nothing_started_twice()
        # The next round rolls it out as well, so it changes its image then.
        await self.plane.apply(self.deployment("moving"))
        await self.settled("moving", REPLICAS, self.image)
        await self.plane.delete("ModelDeployment", created, NAMESPACE)
        await self.plane.gone("ModelDeployment", created, NAMESPACE)

    async def settled(self, name: str, replicas: int, image: str) -> dict[str, str]:
        """Wait until a deployment has its replicas, with that image and on no drained cluster.

        Return the cluster of each replica.
        """

        def holds(seen: Json) -> bool:
            shown = seen["status"].get("replicas")
            clusters = {each["cluster"] for each in seen["status"].get("placements", ())}
            counted = (
                shown == {"total": replicas, "ready": replicas} and len(self.of(seen)) == replicas
            )
            return (
                condition(seen, "Ready") == "True"
                and counted
                and image in str(seen["spec"])
                and self.drained not in clusters
            )

        placed = self.of(await self.plane.until("ModelDeployment", name, holds, NAMESPACE))
        wanted = sorted(
            Held(NAMESPACE, replica, cluster, image).__repr__()
            for replica, cluster in placed.items()
        )

        async def on_clusters() -> list[str]:
            return sorted(repr(each) for each in self.clusters.held.values() if each.name in placed)

        await eventually(on_clusters, lambda found: found == wanted, what=f"the objects of {name}")
        return placed

    @staticmethod
    def of(seen: Json) -> dict[str, str]:
        """Return the clusters of a deployment's replicas."""
        return {each["replica"]: each["cluster"] for each in seen["status"]["placements"]}

    async def nothing_else(self, placed: dict[str, dict[str, str]]) -> None:
        """Wait until exactly these replicas are in the ledger, on clusters, running and routed."""
        wanted = {name: cluster for each in placed.values() for name, cluster in each.items()}

        async def found() -> list[dict[str, str]]:
            ledger = {
                entry["name"]: entry["cluster"] for entry in await self.plane.scheduler("ledger")
            }
            held = {each.name: each.cluster for each in self.clusters.held.values()}
            rows = self.plane.client.list_workflows(
                'WorkflowType = "ModelReplica" AND ExecutionStatus = "Running"'
            )
            running = {row.id.rsplit("/", 1)[1] for row in [row async for row in rows]}
            return [ledger, held, {name: wanted.get(name, "") for name in running}]

        await eventually(
            found,
            lambda seen: seen == [wanted] * 3,
            what="the ledger, the clusters and the workflows",
        )
        assert len(self.clusters.held) == len(wanted)
        assert await self.plane.scheduler("audit") == []

        async def routed() -> list[str]:
            entries = self.clusters.routes["all"].entries if "all" in self.clusters.routes else []
            return sorted(endpoint.name for entry in entries for endpoint in entry.endpoints)

        await eventually(routed, lambda seen: seen == sorted(placed["rolling"]), what="the route")
        assert self.clusters.twice == []

    async def nothing_started_twice(self) -> None:
        """Compare the starts of replicas with the placements of all rounds."""
        rows = self.plane.client.list_workflows(
            'WorkflowType = "ModelReplica" AND ExecutionStatus != "ContinuedAsNew"'
        )
        assert Counter([row.id.rsplit("/", 1)[1] async for row in rows]) == self.started


@asynccontextmanager
async def a_life(store: str, folder: Path) -> AsyncIterator[Life]:
    """Run server, worker and clusters.

    The first worker has to survive, and every run has to replay.
    """
    began = utc_now()
    async with a_server(store, folder / "temporal") as server:
        client = await server.client()
        log = folder / "worker.log"
        served = {"MODELPLANE_QUEUES__SERVE": json.dumps([queues.WORKFLOWS, queues.SCHEDULER])}
        worker = WorkerApart(worker_process(server.address, folder / "secrets", log, **served))
        fleet = ProtocolFleet(client, [], worker)
        clusters = RecordingClusters(settings={"drain_seconds": 1})
        await fleet.start_workers()
        try:
            async with plane_of(fleet, clusters) as plane:
                life = Life(server, plane, clusters, worker)
                await life.begin()
                yield life
                assert worker.process.is_running(), log.read_text()[-4000:]
                await replay_all(client, began, folder)
        finally:
            await worker.shut_down()


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
async def test_changes_continue_when_temporal_is_back(
    number: signal.Signals, tmp_path: Path
) -> None:
    async with a_life("sqlite", tmp_path) as life:
        await life.interrupt(Stop(number, after=0.5))


@pytest.mark.soak
@pytest.mark.random
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_changes_continue_whenever_temporal_stops(store: str, tmp_path: Path) -> None:
    chance = generator()
    async with a_life(store, tmp_path) as life:
        for number in (signal.SIGKILL, signal.SIGTERM) * 3:
            await life.interrupt(
                Stop(number, after=chance.uniform(0, 4), down=chance.uniform(0, 3))
            )
        # Longer than heartbeats and tasks may be late.
        await life.interrupt(Stop(signal.SIGKILL, after=0.5, down=75))
