"""Temporal deletes closed runs long before objects are deleted: every object still answers.

The server accepts no retention below an hour, so the test writes seconds into its
database.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import UpdateNamespaceRequest
from temporalio.client import Client

from api_types import labels, names
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_cache,
    a_deployment,
    condition,
    eventually,
)
from tests.workflows.environment.protocol_fleet import ProtocolFleet, WorkersHere
from tests.workflows.environment.short_runs import runs
from tests.workflows.environment.simulated_clusters import a_class, a_cluster, plane_of
from tests.workflows.environment.simulated_control import a_gateway, a_service, selecting
from tests.workflows.real_server.recording_clusters import RecordingClusters
from tests.workflows.real_server.temporal_servers import NAMESPACE as TEMPORAL_NAMESPACE
from tests.workflows.real_server.temporal_servers import SqliteServer

pytestmark = [pytest.mark.soak, pytest.mark.testbed("shared"), pytest.mark.timeout(600)]

NAMESPACE = "ml"
SETTINGS = {
    # Runs close even while nothing is deleted.
    "limit.historyCount.suggestContinueAsNew": 60,
    # By default, the server deletes a run up to half an hour after its retention.
    "history.retentionTimerJitterDuration": "0s",
}
# Fields of a protobuf Duration: the minimum of the server, and two seconds in as many
# bytes.
HOUR, SECONDS = b"\x08\x90\x1c", b"\x08\x82\x00"
CLOSED = 'ExecutionStatus != "Running"'


async def shorten_retention(server: SqliteServer, client: Client) -> None:
    """Set the retention of the namespace to seconds, which requires a restart of the server."""
    config = NamespaceConfig(workflow_execution_retention_ttl=Duration(seconds=3600))
    request = UpdateNamespaceRequest(namespace=TEMPORAL_NAMESPACE, config=config)
    await client.workflow_service.update_namespace(request)
    await asyncio.to_thread(server.end)
    with closing(sqlite3.connect(server.file)) as database:
        wanted = (TEMPORAL_NAMESPACE,)
        (stored,) = database.execute(
            "SELECT data FROM namespaces WHERE name = ?", wanted
        ).fetchone()
        assert stored.count(HOUR) == 1
        changed = (stored.replace(HOUR, SECONDS), TEMPORAL_NAMESPACE)
        database.execute("UPDATE namespaces SET data = ? WHERE name = ?", changed)
        database.commit()
    server.start()
    await server.client()


async def closed_runs_are_gone(client: Client) -> None:
    """Wait until the server has deleted all closed runs."""

    async def count() -> int:
        return (await client.count_workflows(CLOSED)).count

    await eventually(count, lambda found: found == 0, what="the end of all closed runs")


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[ProtocolFleet]:
    """Run workers at a server that keeps closed runs for two seconds."""
    server = SqliteServer(tmp_path / "temporal", SETTINGS)
    try:
        client = await server.started()
        await shorten_retention(server, client)
        fleet = ProtocolFleet(client, [], WorkersHere(server.address))
        await fleet.start_workers()
        try:
            yield fleet
        finally:
            await fleet.workers.shut_down()
    finally:
        server.end()


@asynccontextmanager
async def a_plane(fleet: ProtocolFleet) -> AsyncIterator[tuple[ControlPlane, RecordingClusters]]:
    """Start two clusters, each with a deployment.

    A service selects the first deployment.
    """
    clusters = RecordingClusters(settings={"drain_seconds": 1})
    async with plane_of(fleet, clusters) as plane:
        await plane.apply(a_gateway())
        await plane.apply(a_class())
        for name in ("eu", "us"):
            await plane.apply(cluster(name))
            await plane.ready("InferenceCluster", name)
        await plane.apply(a_cache("weights", NAMESPACE, "acme/weights"))
        service = a_service("chat", selecting({labels.DEPLOYMENT: "in-eu"}), namespace=NAMESPACE)
        await plane.apply(service)
        for name in ("in-eu", "in-us"):
            await plane.apply(deployment(name))
        for name in ("in-eu", "in-us"):
            await placed(plane, name)
        yield plane, clusters


def cluster(name: str, nodes: int = 10) -> Json:
    document = a_cluster(name, nodes=nodes)
    document["metadata"]["labels"] = {"region": name}
    return document


def deployment(name: str, replicas: int = 2) -> Json:
    only = {"matchLabels": {"region": name.removeprefix("in-")}}
    return a_deployment(name, NAMESPACE, replicas=replicas, clusterSelector=only)


async def placed(plane: ControlPlane, name: str, replicas: int = 2) -> set[str]:
    """Wait until a deployment has exactly its replicas. Return their names."""

    def holds(seen: Json) -> bool:
        shown = {"total": replicas, "ready": replicas}
        return condition(seen, "Ready") == "True" and seen["status"]["replicas"] == shown

    seen = await plane.until("ModelDeployment", name, holds, NAMESPACE)
    rows = seen["status"]["placements"]
    return {row["replica"] for row in rows if row["phase"] != "Terminating"}


async def charged(plane: ControlPlane, clusters: RecordingClusters, *wanted: set[str]) -> None:
    """Wait until exactly these replicas are in the ledger and on clusters."""
    replicas = set[str]().union(*wanted)

    async def found() -> list[set[str]]:
        ledger = {entry["name"] for entry in await plane.scheduler("ledger")}
        return [ledger, {each.name for each in clusters.held.values()}]

    await eventually(found, lambda seen: seen == [replicas] * 2, what="the ledger and the clusters")
    assert await plane.scheduler("audit") == []
    assert clusters.twice == []


async def test_objects_outlive_their_closed_runs(fleet: ProtocolFleet) -> None:
    async with a_plane(fleet) as (plane, clusters):
        deployment_id = names.workflow_id("ModelDeployment", NAMESPACE, "in-eu")
        first = (await fleet.client.get_workflow_handle(deployment_id).describe()).run_id
        cluster_id = names.workflow_id("InferenceCluster", "", "eu")

        # Every entity continues as new, and some of their runs vanish meanwhile.
        for number in range(12):
            await plane.apply(cluster("eu", nodes=11 + number))
            await plane.apply(deployment("in-eu", replicas=3 - number % 2))
            await placed(plane, "in-eu", 3 - number % 2)
        assert (await fleet.client.get_workflow_handle(deployment_id).describe()).run_id != first
        await closed_runs_are_gone(fleet.client)
        for workflow_id in (deployment_id, cluster_id, names.FLEET_SCHEDULER_ID):
            assert await runs(fleet.client, workflow_id) == 1

        # A scheduler that is lost together with its earlier runs reads all entities.
        in_eu, in_us = await placed(plane, "in-eu"), await placed(plane, "in-us")
        await fleet.lose_workers()
        for workflow_id in (names.FLEET_SCHEDULER_ID, names.endpoint_directory_id(NAMESPACE)):
            await fleet.client.get_workflow_handle(workflow_id).terminate("lost on purpose")
        await closed_runs_are_gone(fleet.client)
        await fleet.start_workers()
        await plane.apply(deployment("in-us", replicas=3))
        assert await placed(plane, "in-us", 3) > in_us
        assert await placed(plane, "in-eu") == in_eu
        await charged(plane, clusters, in_eu, await placed(plane, "in-us", 3))

        # A new object takes a name whose former workflow the server has deleted.
        for name in ("in-eu", "in-us"):
            await plane.delete("ModelDeployment", name, NAMESPACE)
            await plane.gone("ModelDeployment", name, NAMESPACE)
        await closed_runs_are_gone(fleet.client)
        await charged(plane, clusters)
        await plane.apply(deployment("in-eu"))
        await charged(plane, clusters, await placed(plane, "in-eu"))
        for kind, name, namespace in (
            ("ModelDeployment", "in-eu", NAMESPACE),
            ("ModelService", "chat", NAMESPACE),
            ("ModelCache", "weights", NAMESPACE),
            ("InferenceGateway", "default", ""),
            ("InferenceCluster", "eu", ""),
            ("InferenceCluster", "us", ""),
            ("InferenceClass", "h100-8x", ""),
        ):
            await plane.delete(kind, name, namespace)
            await plane.gone(kind, name, namespace)
        assert (clusters.held, clusters.routes, clusters.backends) == ({}, {}, {})
        assert await plane.scheduler("ledger") == []


async def test_terminated_workflows_are_replaced_when_nothing_is_left_of_their_runs(
    fleet: ProtocolFleet,
) -> None:
    """Without workers, the termination is noticed only after the run is gone."""
    async with a_plane(fleet) as (plane, clusters):
        before = {name: await placed(plane, name) for name in ("in-eu", "in-us")}
        await charged(plane, clusters, *before.values())
        uids = set(clusters.held)
        lost = min(before["in-eu"])
        await fleet.lose_workers()
        for kind, name in (("ModelReplica", lost), ("ModelDeployment", "in-us")):
            await plane.handle(kind, name, NAMESPACE).terminate("lost on purpose")
        await plane.handle("ModelService", "chat", NAMESPACE).terminate("lost on purpose")
        await closed_runs_are_gone(fleet.client)
        await fleet.start_workers()
        await plane.apply(deployment("in-us"))
        await plane.apply(deployment("in-eu", replicas=3))
        service = a_service("chat", selecting({labels.DEPLOYMENT: "in-eu"}), namespace=NAMESPACE)
        await plane.apply(service)
        after = {"in-eu": await placed(plane, "in-eu", 3), "in-us": await placed(plane, "in-us")}
        await charged(plane, clusters, *after.values())
        assert after["in-us"] == before["in-us"], "the replicas of a lost deployment are taken over"
        assert len(set(clusters.held) & uids) >= len(uids) - 1

        async def routed() -> list[str]:
            entries = clusters.routes["chat"].entries if "chat" in clusters.routes else []
            return sorted(endpoint.name for entry in entries for endpoint in entry.endpoints)

        wanted = sorted(after["in-eu"])
        await eventually(routed, lambda found: found == wanted, what="the route")


async def test_no_replica_moves_when_a_terminated_cluster_and_the_scheduler_are_forgotten(
    fleet: ProtocolFleet,
) -> None:
    async with a_plane(fleet) as (plane, clusters):
        before = {name: await placed(plane, name) for name in ("in-eu", "in-us")}
        await fleet.lose_workers()
        await plane.handle("InferenceCluster", "eu").terminate("lost on purpose")
        scheduler = fleet.client.get_workflow_handle(names.FLEET_SCHEDULER_ID)
        await scheduler.terminate("lost on purpose")
        await closed_runs_are_gone(fleet.client)
        await fleet.start_workers()
        await plane.apply(deployment("in-us", replicas=3))
        in_us = await placed(plane, "in-us", 3)
        assert in_us > before["in-us"]
        await plane.apply(cluster("eu"))
        await plane.ready("InferenceCluster", "eu")
        await plane.apply(deployment("in-eu", replicas=3))
        in_eu = await placed(plane, "in-eu", 3)
        assert in_eu > before["in-eu"]
        await charged(plane, clusters, in_eu, in_us)
