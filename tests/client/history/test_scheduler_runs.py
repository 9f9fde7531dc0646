"""A run can be read at any end of its history, because the scheduler continues
meanwhile.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import WorkflowHistory

from api_types.names import FLEET_SCHEDULER_ID
from api_types.resources.kinds import BY_KIND
from api_types.settings import Settings
from client.history.past_decisions import (
    DecisionId,
    decide_again,
    past_decisions,
    read_id,
)
from client.history.scheduler_runs import replay
from fleet_client.errors import CommandFailed, Refused
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import ControlPlane
from fleet_client.temporal.converter import DATA_CONVERTER
from tests.workflows.histories.recorded import recorded, title
from workflows.fleet_scheduler.recorded_decisions import DecisionReader

RECORDED = recorded("FleetScheduler")
# Seconds. A replay takes a tenth of a second. A replay that waits for an unrecorded
# result never ends.
SECONDS = 20


RUN = "0199c0de-0000-7000-8000-000000000000"


class Offline:
    """The parts of a client that a replay needs."""

    namespace = "default"
    data_converter = DATA_CONVERTER


async def read(events: list[dict[str, Any]]) -> DecisionReader:
    reader = DecisionReader(lambda *_: True, again=True)
    plane = ControlPlane(cast("Any", Offline()), Settings())
    reading = asyncio.create_task(
        replay(
            plane,
            WorkflowHistory.from_json(FLEET_SCHEDULER_ID, {"events": events}),
            reader,
        )
    )
    # The SDK would wait for it even when it is cancelled.
    done, _ = await asyncio.wait({reading}, timeout=SECONDS)
    assert done, "the replay does not end"
    reading.result()
    return reader


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDED, ids=title)
async def test_a_history_is_readable_at_any_end(path: Path) -> None:
    events = json.loads(path.read_text())["events"]
    numbers = []
    for end in [*range(1, len(events), 3), len(events)]:
        reader = await read(events[:end])
        numbers.append(len(reader.found))
        assert len({(each.batch, each.position) for each in reader.found}) == len(
            reader.found
        )
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1] > 0) == (0, True)


class Recorded(ControlPlane):
    """A control plane with one recorded run of the scheduler.

    The last activity before a decision has another name.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(cast("Any", Offline()), Settings())
        self.events = json.loads(path.read_text())["events"]
        last = max(
            at
            for at, event in enumerate(self.events)
            if "markerRecordedEventAttributes" in event
        )
        scheduled = [
            event
            for event in self.events[:last]
            if "activityTaskScheduledEventAttributes" in event
        ]
        scheduled[-1]["activityTaskScheduledEventAttributes"]["activityType"][
            "name"
        ] = "another"

    async def rows(self, query: str) -> AsyncIterator[Any]:
        assert FLEET_SCHEDULER_ID in query
        yield SimpleNamespace(run_id=RUN, start_time=datetime(2026, 1, 1, tzinfo=UTC))

    async def history(self, target: Target, run_id: str) -> WorkflowHistory:
        del target, run_id
        return WorkflowHistory.from_json(FLEET_SCHEDULER_ID, {"events": self.events})


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDED[-1:], ids=title)
async def test_decisions_before_an_unreadable_event_are_read(
    path: Path,
) -> None:
    plane = Recorded(path)
    everything = await read(json.loads(path.read_text())["events"])
    first, last = everything.found[0], everything.found[-1]
    target = Target.of(
        BY_KIND["ModelDeployment"], first.request.namespace, first.request.name
    )
    found = await past_decisions(
        plane, target, most=99, runs_max=9, show=lambda *_: None
    )
    assert len(found.unread) == 1
    assert "cannot be replayed by this program" in str(found.unread[0])
    assert (
        0
        < len(found.decisions)
        < len([each for each in everything.found if each.request.name == target.name])
    )
    again = await decide_again(plane, DecisionId(RUN, first.batch, first.position))
    assert again["inputs"] == first.inputs == found.decisions[-1]["inputs"]
    with pytest.raises(
        CommandFailed, match="cannot be replayed by this program"
    ) as failed:
        await decide_again(plane, DecisionId(RUN, last.batch, last.position))
    assert "modelplane version of the workers" in failed.value.next_step


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1.2",
        "0199c0de-0000-7000-8000-000000000000",
        "0199c0de-0000-7000-8000-000000000000.1.x",
        "a.b.c",
    ],
)
def test_an_invalid_id_is_rejected(text: str) -> None:
    with pytest.raises(Refused, match="is not the id of a decision"):
        read_id(text)


def test_an_id_is_read_as_it_is_written() -> None:
    made = DecisionId("0199c0de-0000-7000-8000-000000000000", 12, 3)
    assert read_id(str(made)) == made
