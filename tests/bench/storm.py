"""Measure the cost of a storm of bad signals for senders of good ones.

Prints one JSON line. Deployments are placed with and without the storm, in turns on one
server, so other load of the machine affects both. The storm goes to objects of every
kind and to the scheduler, in equal parts, with every mistake of `tests/wire/inputs.py`
except those of megabytes. `ratio` is the median time with the storm over the one
without it.
"""

import argparse
import asyncio
import contextlib
import itertools
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

if not __package__:  # run by its path; the tests are not an installed package
    sys.path.insert(0, str(Path(__file__).parents[2]))

from temporalio.service import RPCError

from api_types import names, queues
from api_types.messages.signals import ENTITIES, FleetSchedulerSignals, signals_of
from tests.bench.one_line import one_line
from tests.bench.temporal_burst import (
    NODES,
    POOLS,
    note,
    placed_count,
    until,
    with_clusters,
)
from tests.wire.inputs import LARGE, bad_inputs
from tests.workflows.environment.harness import a_cache, a_deployment
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    ProtocolFleet,
    protocol_fleet,
)
from tests.workflows.environment.simulated_clusters import a_class

# The share of a machine's noise; a costly storm is far above it.
TARGETS = {"ratio": 1.15}
VICTIM = "victim"


async def victims(fleet: ProtocolFleet) -> list[tuple[str, Any]]:
    """Make an object of each kind for the storm; return each workflow id with the
    kind's handlers.
    """
    for document in (
        a_class(VICTIM),
        a_cache(VICTIM, NAMESPACE, "org/model"),
        a_deployment(VICTIM, NAMESPACE),
    ):
        metadata = document["metadata"]
        await fleet.client.start_workflow(
            document["kind"],
            None,
            id=names.workflow_id(
                document["kind"], metadata.get("namespace", ""), metadata["name"]
            ),
            task_queue=queues.WORKFLOWS,
            start_signal="set_spec",
            start_signal_args=[{"manifest": document}],
        )
    await until(lambda: placed_count(fleet, VICTIM, 1), 0.05)
    seen = await fleet.describe(VICTIM)
    assert seen is not None
    (placement,) = seen["status"]["placements"]
    called = {"InferenceCluster": "cluster-0000", "ModelReplica": placement["replica"]}
    namespaced = ("ModelCache", "ModelDeployment", "ModelReplica")
    found: list[tuple[str, Any]] = []
    for kind in ENTITIES:
        scope = NAMESPACE if kind.kind in namespaced else ""
        found.append(
            (names.workflow_id(kind.kind, scope, called.get(kind.kind, VICTIM)), kind)
        )
    return [*found, (names.FLEET_SCHEDULER_ID, FleetSchedulerSignals)]


@contextlib.asynccontextmanager
async def storm(
    fleet: ProtocolFleet, receivers: list[tuple[str, Any]], per_minute: int
) -> AsyncIterator[None]:
    """Send this number of bad signals per minute while the body runs."""
    rows = []
    for workflow_id, kind in receivers:
        for name, signal in signals_of(kind).items():
            inputs = bad_inputs(signal.message)
            rows.append(
                [
                    (workflow_id, name, inputs[mistake])
                    for mistake in inputs
                    if mistake not in LARGE
                ]
            )
    # One to each handler in turn, then the next mistake.
    endless = itertools.cycle(
        [each for turn in zip(*rows, strict=True) for each in turn]
    )

    async def send() -> None:
        for workflow_id, name, arguments in endless:
            await (
                fleet.clients[-1]
                .get_workflow_handle(workflow_id)
                .signal(name, args=arguments)
            )
            await asyncio.sleep(60 / per_minute)

    task = asyncio.create_task(send())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def placing(fleet: ProtocolFleet, count: int, turn: str) -> float:
    """Apply new deployments at once; return the seconds until each is placed, and
    delete them.
    """
    documents = [
        a_deployment(f"{turn}-{number:03}", NAMESPACE) for number in range(count)
    ]
    started = time.perf_counter()
    await fleet.submit(documents)

    async def placed() -> bool:
        running = await fleet.running("ModelReplica")
        return running >= count + 1

    await until(placed, 0.1)
    spent = time.perf_counter() - started
    note(turn, spent)
    for document in documents:
        workflow_id = names.workflow_id(
            "ModelDeployment", NAMESPACE, document["metadata"]["name"]
        )
        await fleet.client.get_workflow_handle(workflow_id).signal("delete", {})
    for document in documents:
        seen = await fleet.describe(document["metadata"]["name"])
        for placement in (seen or {}).get("status", {}).get("placements", ()):
            replica = names.workflow_id("ModelReplica", NAMESPACE, placement["replica"])
            with contextlib.suppress(RPCError):  # it has ended by itself
                await fleet.client.get_workflow_handle(replica).signal(
                    "force", {"scope": "all"}
                )

    async def gone() -> bool:
        return await fleet.running("ModelReplica") <= 1

    await until(gone, 0.5)
    return spent


async def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Place with and without the storm, in turns."""
    calm, stormy = [], []
    async with protocol_fleet() as fleet:
        await with_clusters(fleet, chosen.clusters)
        receivers = await victims(fleet)
        await placing(fleet, chosen.deployments, "warm")
        for turn in range(chosen.turns):
            calm.append(await placing(fleet, chosen.deployments, f"calm-{turn}"))
            async with storm(fleet, receivers, chosen.signals):
                stormy.append(await placing(fleet, chosen.deployments, f"storm-{turn}"))
    without, beside = statistics.median(calm), statistics.median(stormy)
    return {
        "calm_s": round(without, 3),
        "storm_s": round(beside, 3),
        "ratio": round(beside / without, 3),
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--deployments", type=int, default=200)
    parser.add_argument(
        "--clusters",
        type=int,
        default=20,
        help=f"each with {POOLS} pools of {NODES} nodes",
    )
    parser.add_argument("--signals", type=int, default=1_000, help="bad ones a minute")
    parser.add_argument("--turns", type=int, default=3)
    chosen = parser.parse_args(arguments)
    with one_line() as say:
        figures = asyncio.run(measure(chosen))
        say(
            {
                **vars(chosen),
                **figures,
                "targets": TARGETS,
                "met": figures["ratio"] <= TARGETS["ratio"],
            }
        )


if __name__ == "__main__":
    main(sys.argv[1:])
