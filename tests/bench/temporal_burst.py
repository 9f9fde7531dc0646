"""Measure the speed of the whole protocol through a real Temporal server.

Prints one JSON line with each target next to the measurement. Server, workers and
clients share this machine, and workers and clients even one process. The load average
is printed too, because a figure from a busy machine says little. Times are seconds of
wall time. The same run measures a bare skeleton of the protocol first, so that the
product can be compared with the cost of Temporal itself on every machine. There are
three measurements, the third on its own server:

* burst: eight clients apply all deployments at once; the time until the scheduler has
placed the
  last replica.
* single change: one deployment is scaled up by one on the then quiet system; the time
from the
  signal until the deployment has its decision in its status. Both times come from the server's
  history, because a lost query would cost seconds and say nothing about the change.
* restart: all workers stop without grace among many running entities; the time from the
start of
  the new workers and of a fresh deployment until that deployment is placed. The start of a
  Python process is not included.
"""

import argparse
import asyncio
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

if not __package__:  # run by its path; the tests are not an installed package
    sys.path.insert(0, str(Path(__file__).parents[2]))

from api_types import names
from tests.bench import skeleton
from tests.bench.one_line import one_line
from tests.workflows.environment.harness import Json, a_deployment, condition
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    ProtocolFleet,
    ReportedCluster,
    protocol_fleet,
)

POOLS = 4
NODES = 16
POLL_SECONDS = 0.01
TIMEOUT_SECONDS = 300.0
# Targets of the design, in seconds.
TARGETS = {
    "burst_decided_s": 8.0,
    "single_p50_s": 0.4,
    "single_p99_s": 0.3,
    "restart_fresh_decided_s": 5.0,
}
# Limits, as multiples of the bare skeleton.
OVER_SKELETON = 1.5
# The limit for a burst of this many deployments with five replicas each.
LARGE_BURST, LARGE_BURST_SECONDS = 1_000, 40.0


async def until(
    check: Callable[[], Awaitable[bool]],
    every: float = POLL_SECONDS,
    within: float = TIMEOUT_SECONDS,
) -> None:
    """Poll until it holds. Raises TimeoutError after `within` seconds."""
    async with asyncio.timeout(within):
        while not await check():  # noqa: ASYNC110 - what is checked is in another process
            await asyncio.sleep(every)


async def with_clusters(fleet: ProtocolFleet, clusters: int) -> None:
    """Register clusters and wait until the scheduler counts them."""
    pools = {f"pool-{i}": NODES for i in range(POOLS)}
    await fleet.add(
        [ReportedCluster(f"cluster-{i:04}", pools) for i in range(clusters)]
    )

    async def known() -> bool:
        seen = await fleet.scheduler("describe")
        return seen is not None and int(seen["status"]["clusters"]) == clusters

    await until(known)


def note(what: str, seconds: float) -> None:
    """Report progress on standard error, because the run takes minutes."""
    sys.stderr.write(f"{what}: {seconds:.3f} s, load {os.getloadavg()[0]:.1f}\n")


async def burst(
    fleet: ProtocolFleet, documents: list[Json], before: int = 0
) -> dict[str, float]:
    """Apply all at once; return the seconds until all are applied and placed.

    `before`: how many replicas were placed before.
    """
    wanted: int = before + sum(document["spec"]["replicas"] for document in documents)
    started = time.perf_counter()

    async def placed() -> bool:
        seen = await fleet.scheduler("describe")
        return seen is not None and int(seen["status"]["placements"]) >= wanted

    await fleet.submit(documents)
    times = {"applied_s": time.perf_counter() - started}
    # Each poll costs the scheduler a query, on the processors that are measured.
    await until(placed, 0.25)
    times["decided_s"] = time.perf_counter() - started
    note("burst decided", times["decided_s"])
    return times


async def settle(fleet: ProtocolFleet, documents: list[Json], before: int = 0) -> float:
    """Return the seconds until all replicas run, once the deployments know it too.

    `before`: how many replicas ran before.
    """
    wanted: int = before + sum(document["spec"]["replicas"] for document in documents)
    started = time.perf_counter()

    async def running() -> bool:
        return await fleet.running("ModelReplica") >= wanted

    await until(running, 0.5)
    seconds = time.perf_counter() - started
    await until(lambda: quiet(fleet, documents), 1.0)
    note("burst settled", time.perf_counter() - started)
    return seconds


async def quiet(fleet: ProtocolFleet, documents: list[Json]) -> bool:
    """Return whether every deployment got its decision and started its replicas."""
    for document in documents:
        if not await placed_count(
            fleet, document["metadata"]["name"], document["spec"]["replicas"]
        ):
            return False
    return True


async def placed_count(fleet: ProtocolFleet, name: str, replicas: int) -> bool:
    """Return whether a deployment reports this number of replicas as placed and
    started.
    """
    seen = await fleet.describe(name)
    if seen is None:
        return False
    return (
        condition(seen, "ReplicasScheduled") == "True"
        and int(seen["status"]["replicas"]["total"]) == replicas
    )


async def single_changes(
    fleet: ProtocolFleet, documents: list[Json], changes: int
) -> list[float]:
    """Scale one deployment after the other up by one; return the seconds of each,
    sorted.
    """
    spent = [await single_change(fleet, documents, number) for number in range(changes)]
    note("slowest single change", max(spent))
    return sorted(spent)


async def single_change(
    fleet: ProtocolFleet, documents: list[Json], number: int
) -> float:
    """Scale the next deployment up by one; return the seconds until it has its places.

    The first change is number 0.
    """
    turn, which = divmod(number, len(documents))
    name = documents[which]["metadata"]["name"]
    replicas = documents[which]["spec"]["replicas"] + 1 + turn
    await fleet.scale(name, replicas, f"change/{number}")
    await until(lambda: placed_count(fleet, name, replicas), 0.05)
    workflow_id = names.workflow_id("ModelDeployment", NAMESPACE, name)
    deployment = fleet.client.get_workflow_handle(workflow_id)
    return await skeleton.seconds_until_answered(deployment, f"change/{number}")


async def restart(fleet: ProtocolFleet) -> float:
    """Lose all workers and start others; return the seconds until a fresh deployment is
    placed.
    """
    await fleet.lose_workers()
    started = time.perf_counter()
    await asyncio.gather(
        fleet.start_workers(), fleet.apply(a_deployment("fresh", NAMESPACE))
    )
    await until(lambda: placed_count(fleet, "fresh", 1), 0.05)
    return time.perf_counter() - started


def deployments(count: int, replicas: int) -> list[Json]:
    return [
        a_deployment(f"bench-{i:04}", NAMESPACE, replicas=replicas)
        for i in range(count)
    ]


async def measure(chosen: argparse.Namespace) -> dict[str, float]:
    changes = 0 if chosen.burst_only else chosen.changes
    bare = await skeleton.measure(chosen.deployments, chosen.replicas, changes)
    figures = {f"skeleton_{name}": seconds for name, seconds in bare.items()}
    note("burst of the skeleton decided", bare["burst_decided_s"])
    documents = deployments(chosen.deployments, chosen.replicas)
    async with protocol_fleet() as fleet:
        await with_clusters(fleet, chosen.clusters)
        figures |= {
            f"burst_{name}": seconds
            for name, seconds in (await burst(fleet, documents)).items()
        }
        if chosen.burst_only:
            return figures
        figures["burst_replicas_running_s"] = figures["burst_decided_s"] + await settle(
            fleet, documents
        )
        spent = await single_changes(fleet, documents, chosen.changes)
        figures["single_p50_s"] = spent[len(spent) // 2]
        figures["single_p99_s"] = spent[math.ceil(len(spent) * 0.99) - 1]
    async with protocol_fleet() as fleet:
        await with_clusters(fleet, chosen.clusters)
        running = max(
            1, math.ceil((chosen.entities - chosen.clusters) / (1 + chosen.replicas))
        )
        documents = deployments(running, chosen.replicas)
        await burst(fleet, documents)
        await settle(fleet, documents)
        figures["restart_fresh_decided_s"] = await restart(fleet)
    return figures


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--deployments", type=int, default=200)
    parser.add_argument("--replicas", type=int, default=5)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument(
        "--entities",
        type=int,
        default=500,
        help="clusters, deployments and replicas alive at the restart",
    )
    parser.add_argument("--burst-only", action="store_true")
    parser.add_argument("--changes", type=int, default=100)
    chosen = parser.parse_args(arguments)
    with one_line() as say:
        figures = asyncio.run(measure(chosen))
        rounded = {name: round(seconds, 3) for name, seconds in figures.items()}
        over = {
            name: round(figures[name] / figures[f"skeleton_{name}"], 3)
            for name in figures
            if f"skeleton_{name}" in figures
        }
        ratios = {
            name: round(figures[name] / target, 3)
            for name, target in TARGETS.items()
            if name in figures
        }
        say(
            {
                **vars(chosen),
                **rounded,
                "targets": TARGETS,
                "ratios": ratios,
                "over_skeleton": over,
                "met": max(ratios.values()) <= 1,
            }
        )


if __name__ == "__main__":
    main(sys.argv[1:])
