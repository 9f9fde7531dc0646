"""The times of workflow events as the Temporal server recorded them.

A test that polls late still sees the right times.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle


class Received(NamedTuple):
    """A signal in a history."""

    name: str
    at: datetime
    message: Any


class Activity(NamedTuple):
    """A non-local activity in a history.

    `completed` is None while it runs; `order` and `result` are JSON.
    """

    name: str
    scheduled: datetime
    order: Any
    completed: datetime | None = None
    result: Any = None


class Times(NamedTuple):
    """The signals and activities of a workflow's current run, in the order of its history."""

    signals: list[Received]
    activities: list[Activity]

    def completed(self, name: str) -> list[Activity]:
        """Return the completed activities of a type."""
        return [
            each for each in self.activities if each.name == name and each.completed
        ]


async def times_of(handle: WorkflowHandle[Any, Any]) -> Times:
    """Read the history of a workflow."""
    signals, activities = list[Received](), dict[int, Activity]()
    for event in (await handle.fetch_history()).events:
        if event.HasField("workflow_execution_signaled_event_attributes"):
            received = event.workflow_execution_signaled_event_attributes
            signals.append(
                Received(
                    received.signal_name, _at(event), _json(received.input.payloads)
                )
            )
        elif event.HasField("activity_task_scheduled_event_attributes"):
            scheduled = event.activity_task_scheduled_event_attributes
            activities[event.event_id] = Activity(
                scheduled.activity_type.name,
                _at(event),
                _json(scheduled.input.payloads),
            )
        elif event.HasField("activity_task_completed_event_attributes"):
            ended = event.activity_task_completed_event_attributes
            number = ended.scheduled_event_id
            activities[number] = activities[number]._replace(
                completed=_at(event), result=_json(ended.result.payloads)
            )
    return Times(signals, list(activities.values()))


def _at(event: HistoryEvent) -> datetime:
    at: datetime = event.event_time.ToDatetime(UTC)
    return at


def _json(payloads: Sequence[Payload]) -> Any:
    return json.loads(payloads[0].data) if payloads and payloads[0].data else None
