"""A broadcast to 10,000 receivers, also when its worker is killed; prints one JSON line.

The scheduler announces a new epoch twice, to workflows that only receive it. No worker serves them,
so the length of a history tells how many signals its workflow has received. The worker of the fleet
is a process of its own. It is killed and started again when half of the receivers have the second
signal.

* `messages_per_s`: the rate of the first broadcast.
* `got_twice`: the receivers that received the second signal twice.
* `missed`: the receivers that did not receive one of both.
* `single_p50_ratio`, `single_p99_ratio`: the time of a single change of a deployment, as in
  `temporal_burst.py`, during the first broadcast over the time without one. If the scheduler waited
  for the broadcast, a change would take as long.
"""

import argparse
import asyncio
import itertools
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if not __package__:  # run by its path; the tests are not an installed package
    sys.path.insert(0, str(Path(__file__).parents[2]))

from temporalio.client import Client

from activities.messaging.search_attributes import identity_at_start
from api_types import names
from api_types.messages.scheduling import ReportClass
from tests.bench.one_line import one_line
from tests.bench.temporal_burst import (
    burst,
    deployments,
    note,
    settle,
    single_change,
    until,
    with_clusters,
)
from tests.workflows.environment.harness import Json
from tests.workflows.environment.protocol_fleet import ProtocolFleet, protocol_fleet

KIND = "InferenceClass"
AT_ONCE = 32
# Ten receivers a second.
BROADCAST_SECONDS = 1_000.0
SAMPLE = 40
# The start of a workflow, and the task that no worker takes.
EVENTS_AT_START = 2
AT_LEAST = {"messages_per_s": 100.0}
AT_MOST = {
    "missed": 0.0,
    "got_twice": 1_000.0,
    "single_p50_ratio": 1.5,
    "single_p99_ratio": 2.0,
}


class Receivers:
    """Workflows that only receive."""

    def __init__(self, fleet: ProtocolFleet, count: int) -> None:
        self._fleet = fleet
        self._ids = [f"receiver/{number:05}" for number in range(count)]
        self._gate = asyncio.Semaphore(AT_ONCE)
        self.sample = self._ids[:: max(1, count // SAMPLE)]

    async def start(self) -> None:
        """Start them, and wait until visibility lists them."""
        started = time.perf_counter()
        await asyncio.gather(
            *map(self._start, itertools.cycle(self._fleet.clients), self._ids)
        )
        await until(self._are_visible, 1.0, BROADCAST_SECONDS)
        note(f"{len(self._ids)} receivers", time.perf_counter() - started)

    async def _start(self, client: Client, workflow_id: str) -> None:
        async with self._gate:
            await client.start_workflow(
                "Receiver",
                id=workflow_id,
                task_queue="receivers",
                **identity_at_start(KIND, "", workflow_id),
            )

    async def _are_visible(self) -> bool:
        return await self._fleet.running("Receiver") == len(self._ids)

    async def signals(self, workflow_ids: Sequence[str] = ()) -> list[int]:
        """Count the signals that each receiver has got."""
        return await asyncio.gather(*map(self._signals, workflow_ids or self._ids))

    async def _signals(self, workflow_id: str) -> int:
        async with self._gate:
            description = await self._fleet.client.get_workflow_handle(
                workflow_id
            ).describe()
        return description.history_length - EVENTS_AT_START


class Changes:
    def __init__(self, fleet: ProtocolFleet, documents: list[Json]) -> None:
        self._fleet = fleet
        self._documents = documents
        self._numbers = itertools.count()
        self.beside: list[float] = []

    async def make(self, count: int) -> list[float]:
        """Make so many changes, and return the seconds of each."""
        return [await self._make_one() for _ in range(count)]

    async def make_during(self, broadcast: asyncio.Task[float]) -> None:
        """Make changes until a broadcast ends.

        The last change began during the broadcast.
        """
        while not broadcast.done():
            self.beside.append(await self._make_one())

    async def _make_one(self) -> float:
        return await single_change(self._fleet, self._documents, next(self._numbers))


async def is_announcing(fleet: ProtocolFleet) -> bool:
    """Return whether a broadcast of the scheduler is in progress."""
    description = await fleet.client.get_workflow_handle(
        names.FLEET_SCHEDULER_ID
    ).describe()
    pending = description.raw_description.pending_activities
    return any(each.activity_type.name == "broadcast" for each in pending)


async def announce(fleet: ProtocolFleet) -> None:
    """Report an epoch that is greater than the scheduler's, and wait until it announces another."""
    epoch = int((await fleet.scheduler("describe"))["status"]["epoch"])
    report = ReportClass(name="bench", generation=1, epoch=epoch + 1)
    scheduler = fleet.client.get_workflow_handle(names.FLEET_SCHEDULER_ID)
    await scheduler.signal("report_class", report.wire())

    await until(lambda: is_announcing(fleet), 0.02)


async def until_announced(fleet: ProtocolFleet) -> None:
    """Wait for the end of the broadcast."""

    async def ended() -> bool:
        return not await is_announcing(fleet)

    await until(ended, 0.2, BROADCAST_SECONDS)


async def undisturbed(fleet: ProtocolFleet) -> float:
    """Broadcast once, and return the seconds."""
    started = time.perf_counter()
    await until_announced(fleet)
    spent = time.perf_counter() - started
    note("first broadcast", spent)
    return spent


async def killed(fleet: ProtocolFleet, receivers: Receivers) -> None:
    """Broadcast once, and kill the worker when half of the receivers have the signal."""
    before = sum(await receivers.signals(receivers.sample))
    await announce(fleet)
    started = time.perf_counter()

    async def is_half_way() -> bool:
        new = sum(await receivers.signals(receivers.sample)) - before
        return 2 * new >= len(receivers.sample)

    await until(is_half_way, 0.1, BROADCAST_SECONDS)
    await fleet.restart_workers()
    note("worker killed", time.perf_counter() - started)
    await until_announced(fleet)
    note("second broadcast", time.perf_counter() - started)


def percentile(spent: Sequence[float], share: float) -> float:
    """Return the value that this share of all does not exceed."""
    return sorted(spent)[math.ceil(len(spent) * share) - 1]


async def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Take all measurements on one fleet."""
    documents = deployments(chosen.deployments, 1)
    with tempfile.TemporaryDirectory() as folder:
        async with protocol_fleet(apart=Path(folder)) as fleet:
            await with_clusters(fleet, chosen.clusters)
            await burst(fleet, documents)
            await settle(fleet, documents)
            receivers, changes = (
                Receivers(fleet, chosen.receivers),
                Changes(fleet, documents),
            )
            await receivers.start()
            await changes.make(len(documents))
            calm = await changes.make(chosen.changes // 2)
            await announce(fleet)
            broadcast = asyncio.create_task(undisturbed(fleet))
            await changes.make_during(broadcast)
            seconds = await broadcast
            first = await receivers.signals()
            calm += await changes.make(chosen.changes // 2)
            await killed(fleet, receivers)
            both = await receivers.signals()
    second = [after - before for before, after in zip(first, both, strict=True)]
    figures = {
        "messages_per_s": round(chosen.receivers / seconds, 1),
        "missed": first.count(0) + second.count(0),
        "got_twice": sum(count > 1 for count in second),
    }
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        without, beside = percentile(calm, share), percentile(changes.beside, share)
        figures[f"single_{name}_s"] = round(without, 3)
        figures[f"single_{name}_beside_s"] = round(beside, 3)
        figures[f"single_{name}_ratio"] = round(beside / without, 3)
    return {**figures, "changes_beside": len(changes.beside)}


def main(arguments: Sequence[str]) -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--receivers", type=int, default=10_000)
    parser.add_argument("--deployments", type=int, default=20)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--changes", type=int, default=200, help="without a broadcast")
    chosen = parser.parse_args(arguments)
    with one_line() as say:
        figures = asyncio.run(measure(chosen))
        met = all(figures[name] >= least for name, least in AT_LEAST.items())
        met = met and all(figures[name] <= most for name, most in AT_MOST.items())
        say(
            {
                **vars(chosen),
                **figures,
                "at_least": AT_LEAST,
                "at_most": AT_MOST,
                "met": met,
            }
        )


if __name__ == "__main__":
    main(sys.argv[1:])
