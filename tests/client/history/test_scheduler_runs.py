"""A run is read wherever its history ends: the scheduler goes on while it is read."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.client import WorkflowHistory

from api_types.names import FLEET_SCHEDULER_ID
from api_types.settings import Settings
from client.errors import Refused
from client.history.past_decisions import DecisionId, read_id
from client.history.scheduler_runs import replay
from client.temporal.control_plane import ControlPlane
from client.temporal.converter import DATA_CONVERTER
from workflows.fleet_scheduler.recorded_decisions import DecisionReader

RECORDED = sorted((Path(__file__).parents[2] / "histories" / "FleetScheduler").glob("*.json"))
# A replay takes a tenth of a second. One that waits for what is not recorded would never end.
SECONDS = 20


class Offline:
    """What a replay needs of a client."""

    namespace = "default"
    data_converter = DATA_CONVERTER


async def read(events: list[dict[str, Any]]) -> DecisionReader:
    reader = DecisionReader(lambda *_: True, again=True)
    plane = ControlPlane(cast("Any", Offline()), Settings())
    reading = asyncio.create_task(replay(plane, WorkflowHistory.from_json(FLEET_SCHEDULER_ID, {"events": events}), reader))
    # The SDK would wait for it also when it is cancelled.
    done, _ = await asyncio.wait({reading}, timeout=SECONDS)
    assert done, "the replay does not end"
    reading.result()
    return reader


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_a_history_is_read_wherever_it_ends(path: Path) -> None:
    events = json.loads(path.read_text())["events"]
    numbers = []
    for end in [*range(1, len(events), 3), len(events)]:
        reader = await read(events[:end])
        numbers.append(len(reader.found))
        assert len({(each.batch, each.position) for each in reader.found}) == len(reader.found)
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1] > 0) == (0, True)


@pytest.mark.parametrize(
    "text", ["", "x", "1.2", "0199c0de-0000-7000-8000-000000000000", "0199c0de-0000-7000-8000-000000000000.1.x", "a.b.c"]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is not the id of a decision"):
        read_id(text)


def test_an_id_is_read_as_it_is_written() -> None:
    made = DecisionId("0199c0de-0000-7000-8000-000000000000", 12, 3)
    assert read_id(str(made)) == made
