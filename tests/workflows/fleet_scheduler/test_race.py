"""Many deployments request capacity at once, and half of them fit.

Return None is placed twice, and every one is answered. These tests use a real Temporal
server with a worker that is killed. The simulation shows the same for other fleets and
faults.
"""

import asyncio
import contextlib
import functools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.random_cases import FACTOR, generator
from tests.workflows.environment.harness import (
    Json,
    a_deployment,
    condition,
    eventually,
    message,
)
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    ProtocolFleet,
    nodes_charged,
)
from tests.workflows.environment.simulated_fleet import apply_clusters, simulated_fleet

pytestmark = pytest.mark.testbed("shared")

# Two faults occur in a race of forty deployments. A campaign has a larger race and more
# faults.
DEPLOYMENTS, FAULTS = (200, 6) if FACTOR > 1 else (40, 2)
CLUSTERS = 5
POOLS = ("blue", "green")
SAMPLE_EVERY = 0.3

# The condition of each refused deployment: the number of placed replicas, the checked
# clusters, the shortage of each, and a remedy.
HEADLINE = (
    "0 of 1 replicas scheduled (checked 5 clusters). 0/5 clusters are available: 5 "
    "had too few free nodes for engine main "
    "(best: needs 1, 0 free on cluster-0/blue). One more replica would fit with one "
    "more node in cluster-0/blue."
)

Fault = Callable[[], Awaitable[None]]


def clusters(nodes: int) -> dict[str, dict[str, int]]:
    return {f"cluster-{i}": dict.fromkeys(POOLS, nodes) for i in range(CLUSTERS)}


@dataclass(frozen=True)
class Racers:
    """The deployments, and nodes for half of them."""

    count: int

    @property
    def names(self) -> list[str]:
        return [f"racer-{number}" for number in range(self.count)]

    @property
    def places(self) -> int:
        return self.count // 2

    @property
    def nodes(self) -> int:
        """Return the number of nodes of one pool."""
        return self.places // CLUSTERS // len(POOLS)


class Watcher:
    """Sample the ledger continuously and collect overcommitted pools."""

    def __init__(self, fleet: ProtocolFleet, nodes: int) -> None:
        self._fleet = fleet
        self.nodes = nodes
        self.samples = 0
        self.overcommitted: list[str] = []
        self.done = asyncio.Event()

    async def watch(self) -> None:
        while not self.done.is_set():
            ledger = await self._fleet.scheduler("ledger")
            if ledger is not None:
                # Nodes are added before they are reported, and an answer may be
                # delayed. The limit that counts is the one when the answer arrives.
                nodes = self.nodes
                self.samples += 1
                charged = nodes_charged(ledger)
                self.overcommitted += [
                    f"{place}: {count} of {nodes} nodes"
                    for place, count in charged.items()
                    if count > nodes
                ]
            await asyncio.sleep(SAMPLE_EVERY)


@contextlib.asynccontextmanager
async def watched(fleet: ProtocolFleet, nodes: int) -> AsyncIterator[Watcher]:
    watcher = Watcher(fleet, nodes)
    task = asyncio.create_task(watcher.watch())
    try:
        yield watcher
    finally:
        watcher.done.set()
        await task


async def described(fleet: ProtocolFleet, names: Iterable[str]) -> dict[str, Json]:
    """Return the named deployments that answer."""
    gate = asyncio.Semaphore(16)

    async def one(name: str) -> tuple[str, Json | None]:
        async with gate:
            return name, await fleet.describe(name)

    return {
        name: seen
        for name, seen in await asyncio.gather(*(one(name) for name in names))
        if seen
    }


def verdict(seen: Json) -> str:
    """Return `started` if a replica of the deployment runs, or else the reason why not.

    The reason differs from `HEADLINE` while clusters report again after the loss of a
    worker.
    """
    placed = condition(seen, "ReplicasScheduled") == "True"
    return "started" if placed else message(seen, "ReplicasScheduled")


async def settled(fleet: ProtocolFleet, racers: Racers, placed: int) -> None:
    """Wait until the scheduler, visibility and every deployment agree that `placed`
    deployments are placed and the others refused.
    """
    seen: dict[str, Json] = {}

    async def progress() -> Json:
        scheduler = await fleet.scheduler("describe") or {"status": {}}
        shown = {
            "replicas": await fleet.running("ModelReplica"),
            "ledger": scheduler["status"].get("replicas"),
        }
        if shown == {"replicas": placed, "ledger": placed}:
            # A deployment in its final state is not queried again, because two hundred
            # queries per poll would be a load of their own.
            final = "started" if placed == racers.count else HEADLINE
            seen.update(
                await described(
                    fleet,
                    [
                        name
                        for name in racers.names
                        if name not in seen
                        or verdict(seen[name]) not in ("started", final)
                    ],
                )
            )
        return {**shown, **Counter(verdict(each) for each in seen.values())}

    refused = {HEADLINE: racers.count - placed} if placed < racers.count else {}
    wanted = {"replicas": placed, "ledger": placed, "started": placed, **refused}
    await eventually(progress, lambda shown: shown == wanted, what=f"{wanted}")


async def answer(fleet: ProtocolFleet, query: str) -> Any:
    """Return the scheduler's answer as soon as there is one."""
    return await eventually(
        lambda: fleet.scheduler(query),
        lambda seen: seen is not None,
        what=f"an answer to {query}",
    )


async def race(
    fleet: ProtocolFleet, racers: Racers, faults: list[tuple[float, Fault]]
) -> None:
    """Submit all deployments while the faults happen, then add capacity for the refused ones."""
    await apply_clusters(fleet, clusters(racers.nodes))
    async with watched(fleet, racers.nodes) as watcher:
        submitted = asyncio.create_task(
            fleet.submit([a_deployment(name, NAMESPACE) for name in racers.names])
        )
        for pause, fault in faults:
            await asyncio.sleep(pause)
            await fault()
        await submitted
        await settled(fleet, racers, racers.places)
        assert await answer(fleet, "audit") == []
        places = nodes_charged(await answer(fleet, "ledger"))
        assert places == {
            (cluster, pool): racers.nodes
            for cluster in clusters(racers.nodes)
            for pool in POOLS
        }

        watcher.nodes = 2 * racers.nodes
        await apply_clusters(fleet, clusters(2 * racers.nodes))
        await settled(fleet, racers, racers.count)
        assert await answer(fleet, "audit") == []
        owners = Counter(entry["deployment"] for entry in await answer(fleet, "ledger"))
        assert owners == dict.fromkeys(racers.names, 1)
    assert watcher.overcommitted == []
    assert watcher.samples > 10


@pytest.mark.long
@pytest.mark.random
async def test_deployments_that_fit_are_placed_while_scheduler_and_worker_are_lost(
    tmp_path: Path,
) -> None:
    chance = generator()
    racers = Racers(DEPLOYMENTS)
    async with simulated_fleet(apart=tmp_path) as fleet:
        # The next scheduler continues this state. One that rebuilds may release the
        # place of a deployment that is slow to answer.
        lose_scheduler = functools.partial(fleet.terminate_scheduler, "lost on purpose")
        kinds: list[Fault] = [lose_scheduler, fleet.restart_workers] * (FAULTS // 2)
        chance.shuffle(kinds)
        await race(fleet, racers, [(chance.uniform(0.05, 1.5), kind) for kind in kinds])
