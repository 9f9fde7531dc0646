"""Past decisions about a deployment, and the repetition of one of them.

The id of a decision is its position: the run of the scheduler, the batch in the run,
and the request in the batch.
"""

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from api_types.clock import timestamp
from api_types.messages.scheduling import PlacementRequest
from client.history.differences import differences
from client.history.scheduler_runs import read_run, scheduler_runs
from fleet_client.errors import CommandFailed, NotFound, Refused
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree
from fleet_client.temporal.control_plane import ControlPlane
from scheduler import SCHEDULER_VERSION
from workflows.fleet_scheduler.recorded_decisions import (
    DecisionOutcome,
    DecisionReader,
    RecordedDecision,
)

IN_HISTORY = (
    "only Temporal has past decisions; `modelplane events md/NAME` shows events "
    "through the front"
)
_SHOWN_MAX = 120
_NEXT = "`modelplane decisions md/NAME` lists decisions with their ids"


class DecisionId(NamedTuple):
    """The position of a recorded decision."""

    run_id: str
    batch: int
    position: int

    def __str__(self) -> str:
        """Return the form that users read and write."""
        return f"{self.run_id}.{self.batch}.{self.position}"


def read_id(text: str) -> DecisionId:
    """Parse the id of a decision. Raise `Refused`."""
    run_id, *numbers = text.split(".")
    try:
        batch, position = map(int, numbers)
        found = DecisionId(str(uuid.UUID(run_id)), batch, position)
    except ValueError as error:
        raise Refused(
            f"{text[:_SHOWN_MAX]!r} is not the id of a decision", next_step=_NEXT
        ) from error
    return found


@dataclass(frozen=True)
class PastDecisions:
    """Decisions, the latest first.

    `unread` has the reasons why runs could not be read. `runs` of the `kept` runs were
    read.
    """

    decisions: list[Tree]
    unread: list[CommandFailed]
    runs: int
    kept: int


async def past_decisions(
    plane: ControlPlane,
    target: Target,
    *,
    most: int,
    runs_max: int,
    show: Callable[[int, int, int], None],
) -> PastDecisions:
    """Read the latest decisions about a deployment, up to limits of decisions and runs.

    `show` is called before each run with the runs read so far, the runs to read, and
    the decisions found. Raise `Unreachable`.
    """
    kept = await scheduler_runs(plane)
    read = PastDecisions([], [], min(len(kept), runs_max), len(kept))
    for number, run in enumerate(kept[:runs_max]):
        show(number, read.runs, len(read.decisions))
        reader = DecisionReader(
            lambda _batch, _position, place: (
                (place.namespace, place.name) == (target.namespace, target.name)
            )
        )
        try:
            await read_run(plane, run.run_id, reader)
        except NotFound:
            continue  # its retention has just ended
        except CommandFailed as failure:
            read.unread.append(failure)
        read.decisions.extend(
            decision_tree(run.run_id, each) for each in reversed(reader.found)
        )
        if len(read.decisions) >= most:
            del read.decisions[most:]
            return PastDecisions(read.decisions, read.unread, number + 1, read.kept)
    return read


async def decide_again(plane: ControlPlane, wanted: DecisionId) -> Tree:
    """Repeat a decision from its recorded inputs, and compare.

    Raise `NotFound`, `CommandFailed` or `Unreachable`.
    """

    def is_wanted(batch: int, position: int, _: PlacementRequest) -> bool:
        return (batch, position) == wanted[1:]

    reader = DecisionReader(is_wanted, again=True)
    try:
        await read_run(plane, wanted.run_id, reader)
    except NotFound:
        raise
    except CommandFailed:
        # The failure may concern a later part of the history.
        if not reader.found:
            raise
    if not reader.found:
        raise NotFound(
            f"run {wanted.run_id} of the scheduler has no decision "
            f"{wanted.batch}.{wanted.position}",
            details=[f"it made decisions in {reader.batches} batches"],
            next_step=_NEXT,
        )
    (found,) = reader.found
    different = differences(found.recorded, found.again or DecisionOutcome())
    return {
        **decision_tree(wanted.run_id, found),
        "replayedWith": SCHEDULER_VERSION,
        "same": not different,
        "differences": [each.tree for each in different],
    }


def decision_tree(run_id: str, each: RecordedDecision) -> Tree:
    """Return a decision as `-o json` prints it."""
    decision = each.recorded.decision
    placed = (
        Counter(placement.action for placement in decision.placements)
        if decision
        else Counter[str]()
    )
    return {
        "id": str(DecisionId(run_id, each.batch, each.position)),
        "namespace": each.request.namespace,
        "name": each.request.name,
        "uid": each.request.uid,
        "generation": each.request.generation,
        "requestId": each.request.request_id,
        "time": timestamp(datetime.fromtimestamp(each.now / 1000, UTC)),
        "schedulerVersion": each.version,
        "inputs": each.inputs,
        "desired": each.request.wanted,
        "outcome": {
            "kept": placed["Keep"],
            "created": placed["Create"],
            "updated": placed["Update"],
            "replaced": placed["Replace"],
            "evicted": len(decision.evictions) if decision else 0,
            "preempted": len(decision.victims) if decision else 0,
            "missing": decision.shortfall if decision else each.request.wanted,
        },
        "reason": decision.message if decision else "",
        "problem": each.recorded.problem,
    }
