"""A Temporal server is killed and restarted under a running front.

Answered writes persist, and watches receive all changes.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.front.front_under_test import DEPLOYMENTS, FrontUnderTest, Json, a_front
from tests.workflows.environment.harness import ControlPlane, a_deployment, eventually
from tests.workflows.environment.protocol_fleet import ProtocolFleet, WorkersHere
from tests.workflows.environment.simulated_clusters import SimulatedClusters, plane_of
from tests.workflows.real_server.temporal_servers import SqliteServer

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.timeout(900)]

NAMESPACE = "over-temporal"
PATH = DEPLOYMENTS.format(NAMESPACE)
MERGE = {"Content-Type": "application/merge-patch+json"}
NAMES = [f"n{number}" for number in range(4)]
WRITES, ENOUGH = 24, 6
"""The number of writes, and the number of answers before the server is killed."""
WATCH_SECONDS = 280


@asynccontextmanager
async def a_plane(server: SqliteServer) -> AsyncIterator[ControlPlane]:
    """Run a control plane on a server that may be killed, but runs at the end."""
    try:
        client = await server.started()
        fleet = ProtocolFleet(client, [], WorkersHere(server.address))
        await fleet.start_workers()
        try:
            async with plane_of(fleet, SimulatedClusters()) as plane:
                yield plane
        finally:
            await fleet.workers.shut_down()
    finally:
        server.end()


@dataclass
class Watcher:
    """Learns the labels of objects from one watch, by name."""

    front: FrontUnderTest
    held: dict[str, Json] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Watch until cancelled, or until the front ends the watch."""
        async for event in self.front.watched(
            PATH, seconds=WATCH_SECONDS, begun=self.begun
        ):
            metadata = event["object"]["metadata"]
            if event["type"] == "DELETED":
                self.held.pop(metadata["name"], None)
            else:
                self.held[metadata["name"]] = metadata.get("labels", {})


async def write(front: FrontUnderTest, number: int, answered: set[int]) -> int:
    """Set a label on an object; return the status."""
    body = {"metadata": {"labels": {f"l{number}": "x"}}}
    status, answer = await front.ask(
        "PATCH", f"{PATH}/{NAMES[number % len(NAMES)]}", body, **MERGE
    )
    assert status in (200, 409, 429, 503), answer
    if status == 200:
        answered.add(number)
    return status


async def test_a_front_loses_no_change_while_temporal_restarts(
    tmp_path: Path,
) -> None:
    server = SqliteServer(tmp_path / "temporal")
    async with a_plane(server) as plane, a_front(plane, tmp_path / "front") as front:
        for name in (*NAMES, "deleted"):
            status, answer = await front.ask(
                "POST", PATH, a_deployment(name, NAMESPACE, replicas=0)
            )
            assert status == 201, answer
        watcher = Watcher(front)
        watching = asyncio.create_task(watcher.run())

        async def begun() -> list[str]:
            return watcher.begun

        try:
            await eventually(begun, bool, what="the watch")
            await _killed_and_started_while_all_write(front, server)
            # Changes by another client, which the front does not learn from its own
            # writes.
            await plane.apply(a_deployment("created", NAMESPACE, replicas=0))
            await plane.delete("ModelDeployment", "deleted", NAMESPACE)
            await _knows_all(front, watcher)
            assert not watching.done(), "it was one watch all the time"
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def _killed_and_started_while_all_write(
    front: FrontUnderTest, server: SqliteServer
) -> None:
    answered = set[int]()

    async def count() -> int:
        return len(answered)

    writes = [
        asyncio.create_task(write(front, number, answered)) for number in range(WRITES)
    ]
    await eventually(
        count,
        lambda found: found >= ENOUGH,
        longest_pause=0.01,
        what="the first answers",
    )
    server.end()
    # Meanwhile the last known state is served.
    status, listed = await front.ask("GET", PATH)
    assert (status, {item["metadata"]["name"] for item in listed["items"]}) == (
        200,
        {*NAMES, "deleted"},
    )
    server.start()
    await server.client()
    await asyncio.gather(*writes)

    async def repeated() -> set[int]:
        await asyncio.gather(
            *(
                write(front, number, answered)
                for number in range(WRITES)
                if number not in answered
            )
        )
        return answered

    await eventually(
        repeated, lambda found: len(found) == WRITES, what="writes after the restart"
    )
    # Only rejected writes were repeated; earlier answered writes persist.
    for name in NAMES:
        kept = await front.plane.describe("ModelDeployment", name, NAMESPACE)
        of_object = {
            f"l{number}"
            for number in range(WRITES)
            if NAMES[number % len(NAMES)] == name
        }
        assert set(kept["metadata"]["labels"]) == of_object


async def _knows_all(front: FrontUnderTest, watcher: Watcher) -> None:
    """Wait until the watcher has the current state."""

    async def differs() -> tuple[dict[str, Json], dict[str, Json]]:
        _, listed = await front.ask("GET", PATH)
        return {
            item["metadata"]["name"]: item["metadata"].get("labels", {})
            for item in listed["items"]
        }, watcher.held

    def holds(found: tuple[dict[str, Json], dict[str, Json]]) -> bool:
        return found[0] == found[1] and set(found[0]) == {*NAMES, "created"}

    await eventually(differs, holds, what="the watcher")
    assert {label for labels in watcher.held.values() for label in labels} == {
        f"l{number}" for number in range(WRITES)
    }
