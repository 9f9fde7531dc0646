"""Measure the cost of the scheduler's answers as Temporal's own signals.

Prints one JSON line. One scheduler sends its answers in two ways, on one server:

* external: the workflow signals the deployment
(`workflow.get_external_workflow_handle`). * activity: the activity `tell_many` signals
it, as in the product.

The name of a deployment selects the way of its answers. Both ways take turns, so other
load of the machine affects both. A turn is a burst of new deployments and then single
changes, as in `temporal_burst.py`. Each ratio is the external way over the activity.

The events are in the history of the scheduler. `send_events` counts the events of
sending. `cpu_s` is the processor time of server, workers and clients during a burst.
"""

import argparse
import asyncio
import math
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

if not __package__:  # run by its path; the tests are not an installed package
    sys.path.insert(0, str(Path(__file__).parents[2]))

from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.exceptions import ApplicationError

from api_types import names
from api_types.messages.delivery import SignalRequest
from tests.bench.one_line import one_line
from tests.bench.steady_state import Usage
from tests.bench.temporal_burst import burst, settle, single_changes, with_clusters
from tests.workflows.environment.harness import a_deployment
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    ProtocolFleet,
    protocol_fleet,
)
from workflows.entity.calls.sending import send_all
from workflows.fleet_scheduler import calls

EXTERNAL, ACTIVITY = "external", "activity"
# Each way comes first equally often.
TURNS = (ACTIVITY, EXTERNAL, EXTERNAL, ACTIVITY)
# The server fails the task of a workflow that waits for more than 2,000 signals.
PENDING_MAX = 1_000
# The type of the failure if the receiver does not run.
NOT_FOUND = "ExternalWorkflowExecutionNotFound"
# Ratios up to which the external way is cheap enough; ADR 3 names the other conditions.
TARGETS = {
    "events_per_replica": 1.25,
    "single_p99_s": 1.1,
    "burst_decided_s": 1.1,
    "cpu_s": 1.1,
}


async def send(signals: Sequence[SignalRequest], summary: str) -> list[str]:
    """Send signals in the way that the names of their receivers select.

    A replay sends each signal in the same way. Returns the receivers that do not run.
    """
    external: dict[str, list[SignalRequest]] = defaultdict(list)
    others: list[SignalRequest] = []
    for signal in signals:
        name = signal.workflow_id.rpartition("/")[2]
        way = external[signal.workflow_id] if name.startswith(EXTERNAL) else others
        way.append(signal)
    missing = await send_all(others, summary) if others else []
    receivers = list(external)
    for first in range(0, len(receivers), PENDING_MAX):
        page = receivers[first : first + PENDING_MAX]
        runs = await asyncio.gather(
            *(send_external(external[receiver]) for receiver in page)
        )
        missing += [
            receiver
            for receiver, does_run in zip(page, runs, strict=True)
            if not does_run
        ]
    return missing


async def send_external(signals: Sequence[SignalRequest]) -> bool:
    """Send signals to one receiver, and return whether it runs.

    The server does not keep the order of signals that are sent at the same time.
    """
    for signal in signals:
        receiver = workflow.get_external_workflow_handle(signal.workflow_id)
        try:
            await receiver.signal(signal.signal, signal.payload)
        except ApplicationError as error:
            if error.type != NOT_FOUND:
                raise
            return False
    return True


@dataclass
class Turn:
    """The measurements of one turn.

    Events of the scheduler belong to it by their times.
    """

    way: str
    began: float = 0.0
    settled: float = 0.0
    ended: float = 0.0
    decided_s: float = 0.0
    cpu_s: float = 0.0
    singles: list[float] = field(default_factory=list)


async def take_turn(
    fleet: ProtocolFleet,
    number: int,
    way: str,
    chosen: argparse.Namespace,
) -> Turn:
    """Place a burst, wait until its replicas run, and change one deployment after the other."""
    turn = Turn(way)
    chosen_names = [f"{way}-{number}-{each:04}" for each in range(chosen.deployments)]
    documents = [
        a_deployment(name, NAMESPACE, replicas=chosen.replicas) for name in chosen_names
    ]
    seen = await fleet.scheduler("describe")
    placed, running = (
        int(seen["status"]["placements"]),
        await fleet.running("ModelReplica"),
    )
    before, turn.began = processor_seconds(), time.time()
    turn.decided_s = (await burst(fleet, documents, placed))["decided_s"]
    await settle(fleet, documents, running)
    turn.settled, turn.cpu_s = time.time(), processor_seconds() - before
    turn.singles = await single_changes(fleet, documents, chosen.changes)
    turn.ended = time.time()
    return turn


def processor_seconds() -> float:
    """Return the processor time of this process and its children: workers, clients and server."""
    own = os.getpid()
    stats = [
        stat for stat in Path("/proc").glob("[0-9]*/stat") if parent_of(stat) == own
    ]
    return sum(
        Usage.of(pid).seconds
        for pid in (own, *(int(stat.parent.name) for stat in stats))
    )


def parent_of(stat: Path) -> int:
    """Return the parent of a process; 0 for a process that has just ended."""
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


async def scheduler_events(fleet: ProtocolFleet) -> list[HistoryEvent]:
    """Read the histories of all runs of the scheduler, in order."""
    description = await fleet.client.get_workflow_handle(
        names.FLEET_SCHEDULER_ID
    ).describe()
    run = description.raw_description.workflow_execution_info.first_run_id
    events: list[HistoryEvent] = []
    while run:
        handle = fleet.client.get_workflow_handle(names.FLEET_SCHEDULER_ID, run_id=run)
        events += (await handle.fetch_history()).events
        run = events[
            -1
        ].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return events


def within(
    events: Sequence[HistoryEvent], began: float, ended: float
) -> list[HistoryEvent]:
    """Return the events within a time range."""
    return [
        event
        for event in events
        if began <= event.event_time.ToNanoseconds() / 1e9 < ended
    ]


def of_sending(events: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """Return the events of activities and of external signals."""
    parts = ("ACTIVITY_TASK_", "SIGNAL_EXTERNAL_", "EXTERNAL_")
    kinds = tuple(f"EVENT_TYPE_{part}" for part in parts)
    return [
        event for event in events if EventType.Name(event.event_type).startswith(kinds)
    ]


def figures_of(
    turns: Sequence[Turn],
    events: Sequence[HistoryEvent],
    chosen: argparse.Namespace,
) -> dict[str, float]:
    """Return the figures of the turns of one way."""
    bursts = [
        event for turn in turns for event in within(events, turn.began, turn.settled)
    ]
    singles = [
        event for turn in turns for event in within(events, turn.settled, turn.ended)
    ]
    spent = sorted(seconds for turn in turns for seconds in turn.singles)
    decisions = len(turns) * chosen.deployments
    exact = {
        "events_per_decision": len(bursts) / decisions,
        "send_events_per_decision": len(of_sending(bursts)) / decisions,
        "events_per_replica": len(bursts) / decisions / chosen.replicas,
        "events_per_single_change": len(singles) / len(spent),
        "send_events_per_single_change": len(of_sending(singles)) / len(spent),
        "single_p50_s": spent[len(spent) // 2],
        "single_p99_s": spent[math.ceil(len(spent) * 0.99) - 1],
        "burst_decided_s": statistics.mean(turn.decided_s for turn in turns),
        "cpu_s": statistics.mean(turn.cpu_s for turn in turns),
    }
    return {name: round(value, 3) for name, value in exact.items()}


async def measure(chosen: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Let both ways take turns on one fleet, after a short turn that warms it up."""
    short = argparse.Namespace(
        deployments=min(20, chosen.deployments), replicas=1, changes=5
    )
    turns: dict[str, list[Turn]] = defaultdict(list)
    async with protocol_fleet() as fleet:
        await with_clusters(fleet, chosen.clusters)
        await take_turn(fleet, 0, ACTIVITY, short)
        for number, way in enumerate(TURNS, 1):
            turns[way].append(await take_turn(fleet, number, way, chosen))
        events = await scheduler_events(fleet)
    return {way: figures_of(taken, events, chosen) for way, taken in turns.items()}


def main(arguments: Sequence[str]) -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--deployments", type=int, default=200)
    parser.add_argument("--replicas", type=int, default=5)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument(
        "--changes", type=int, default=100, help="in each of the four turns"
    )
    chosen = parser.parse_args(arguments)
    with one_line() as say, patch.object(calls, "send_all", send):
        figures: dict[str, Any] = dict(asyncio.run(measure(chosen)))
        external, activity = figures[EXTERNAL], figures[ACTIVITY]
        ratios = {name: round(external[name] / activity[name], 3) for name in activity}
        met = all(ratios[name] <= most for name, most in TARGETS.items())
        say(
            {
                **vars(chosen),
                **figures,
                "ratios": ratios,
                "targets": TARGETS,
                "met": met,
            }
        )


if __name__ == "__main__":
    main(sys.argv[1:])
