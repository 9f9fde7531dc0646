"""Measure how soon a scheduler that lost its memory decides again.

Prints one JSON line with the target next to the measurement. Clusters are simulated at
the interface of their activities. Everything else is real: server, workers, and a
workflow for each cluster, deployment and replica. When everything is placed and at
rest, the scheduler is terminated, all workers are stopped without grace, and visibility
begins to omit one entity in a hundred. `fresh_decided_s` is the time from the start of
the new workers and of a fresh deployment until that deployment is placed. No worker has
a workflow in its cache then, so every workflow must be replayed before it answers.
`moved` counts replicas that are on another cluster than before, or on none, and
`placed_twice` deployments with more replicas than they want. Both must be 0.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

if not __package__:  # run by its path; the tests are not an installed package
    sys.path.insert(0, str(Path(__file__).parents[2]))

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from activities.messaging import lookups
from activities.messaging.messages import Survey
from api_types import names, queues
from api_types.payloads.packing import unpack
from scheduler.fleet.snapshots.ledger_rows import unpack_rows
from scheduler.model.inputs import LedgerEntry
from scheduler.model.reasons import BOUND
from tests.bench.one_line import one_line
from tests.bench.temporal_burst import note, placed_count, until
from tests.workflows.environment.harness import a_deployment
from tests.workflows.environment.protocol_fleet import NAMESPACE, ProtocolFleet
from tests.workflows.environment.simulated_fleet import (
    apply_clusters,
    simulated_fleet,
    until_known,
)
from workflows.fleet_scheduler.rebuild import activities

TARGETS = {"fresh_decided_s": 10.0, "moved": 0.0, "placed_twice": 0.0}
POOLS = ("blue", "green")
LEFT_OUT = 100
SETUP_SECONDS = 1_800.0


async def entries(fleet: ProtocolFleet) -> list[LedgerEntry]:
    """Read the whole ledger, page by page."""
    handle = fleet.client.get_workflow_handle(names.FLEET_SCHEDULER_ID)
    found: list[LedgerEntry] = []
    after = ""
    while True:
        page = await handle.query("ledger_page", after)
        found += unpack_rows(unpack(page["entries"]))
        after = page["after"]
        if not after:
            return found


async def stale(client: Client, wanted: Survey) -> lookups.VisibilityPage:
    """List a page without one entity in a hundred."""
    listing = await lookups.list_entities(client, wanted)
    found = {
        name: cluster
        for number, (name, cluster) in enumerate(listing.found.items())
        if number % LEFT_OUT != LEFT_OUT - 1
    }
    return lookups.VisibilityPage(found, listing.after)


async def fill(fleet: ProtocolFleet, chosen: argparse.Namespace) -> int:
    """Make clusters with room for twice as many replicas, and the replicas; return
    their number.
    """
    each: int = -(-chosen.replicas // chosen.deployments)
    wanted: int = each * chosen.deployments
    nodes = -(-2 * wanted // (chosen.clusters * len(POOLS))) + 1
    await apply_clusters(
        fleet,
        {
            f"cluster-{number:04}": dict.fromkeys(POOLS, nodes)
            for number in range(chosen.clusters)
        },
    )
    started = time.perf_counter()
    await fleet.submit(
        [
            a_deployment(f"bench-{number:04}", NAMESPACE, replicas=each)
            for number in range(chosen.deployments)
        ]
    )

    async def running() -> bool:
        return await fleet.running("ModelReplica") >= wanted

    async def at_rest() -> bool:
        return await tasks_waiting(fleet.client) == 0 and all(
            entry.state == BOUND for entry in await entries(fleet)
        )

    async with asyncio.timeout(SETUP_SECONDS):
        for reached, what in ((running, "run"), (at_rest, "are at rest")):
            while not await reached():  # noqa: ASYNC110 - what is checked is in another process
                await asyncio.sleep(2)
            note(f"{wanted} replicas {what}", time.perf_counter() - started)
    return wanted


async def tasks_waiting(client: Client) -> int:
    """Count the waiting workflow tasks of entities, as far as the server knows."""
    queue = TaskQueue(name=queues.WORKFLOWS)
    kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    wanted = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=queue,
        task_queue_type=kind,
        report_stats=True,
    )
    return (
        await client.workflow_service.describe_task_queue(wanted)
    ).stats.approximate_backlog_count


async def lose(fleet: ProtocolFleet) -> float:
    """Lose scheduler and workers; return the seconds until a fresh deployment is
    placed.
    """
    await fleet.client.get_workflow_handle(names.FLEET_SCHEDULER_ID).terminate(
        "lost on purpose"
    )
    await fleet.lose_workers()
    started = time.perf_counter()
    await asyncio.gather(
        fleet.start_workers(), fleet.apply(a_deployment("fresh", NAMESPACE))
    )
    await until(lambda: placed_count(fleet, "fresh", 1), 0.05)
    return time.perf_counter() - started


async def measure(chosen: argparse.Namespace) -> dict[str, float]:
    """Fill the fleet, lose the scheduler, and compare the ledgers before and after."""
    async with simulated_fleet() as fleet:
        wanted = await fill(fleet, chosen)
        before = {entry.uid: entry.cluster for entry in await entries(fleet)}
        with patch.object(activities, "list_entities", stale):
            seconds = await lose(fleet)
            note("a fresh deployment is placed", seconds)
            await until_known(fleet, chosen.clusters, SETUP_SECONDS)
            after = await entries(fleet)
        clusters = {entry.uid: entry.cluster for entry in after}
        owners = Counter(entry.deployment for entry in after)
        each = wanted // chosen.deployments
        return {
            "fresh_decided_s": round(seconds, 3),
            "moved": sum(
                clusters.get(uid) != cluster for uid, cluster in before.items()
            ),
            "placed_twice": sum(count > each for count in owners.values()),
            "replicas_before": len(before),
        }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clusters", type=int, default=300)
    parser.add_argument("--replicas", type=int, default=10_000)
    parser.add_argument("--deployments", type=int, default=100)
    chosen = parser.parse_args(arguments)
    with one_line() as say:
        figures = asyncio.run(measure(chosen))
        met = all(figures[name] <= target for name, target in TARGETS.items())
        say({**vars(chosen), **figures, "targets": TARGETS, "met": met})


if __name__ == "__main__":
    main(sys.argv[1:])
