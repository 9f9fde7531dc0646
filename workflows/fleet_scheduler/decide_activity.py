"""The local activity in which the scheduler decides.

It runs in the process of the FleetScheduler workflow and reads that workflow's own cache. What it returns is recorded in history, so a
newer scoring rule never breaks an old replay, and no selector is ever evaluated in workflow code.
"""

from typing import Any

from pydantic import Field
from temporalio import activity

from api_types.base import Message
from api_types.messages.scheduling import PlacementRequest
from scheduler import SCHEDULER_VERSION, KeptReplica, ScheduleRequest, decide, read_need, to_wire
from workflows.fleet_scheduler.cache import cache_registry


class DecideBatch(Message):
    """A batch of requests against the ledger of one run at one version; `now` in ms."""

    run_id: str
    version: int
    now: int
    requests: list[PlacementRequest]


class Decided(Message):
    """The decisions in wire form by request id, and why a request could not be read."""

    scheduler_version: str = ""
    decisions: dict[str, dict[str, Any]] = Field(default_factory=dict)
    problems: dict[str, str] = Field(default_factory=dict)


@activity.defn(name="decide")
def decide_batch(batch: DecideBatch) -> Decided:
    """Decide a batch. The ledger is read, never changed.

    Raises:
        StaleSnapshot: the cache of that run is not in this process, or not at that version.

    """
    fleet = cache_registry.find(batch.run_id, batch.version).fleet
    requests: list[ScheduleRequest] = []
    problems: dict[str, str] = {}
    for place in batch.requests:
        try:
            requests.append(schedule_request(place))
        except ValueError as error:
            problems[place.request_id] = str(error)
    decisions = {decision.request_id: to_wire(decision) for decision in decide(fleet, requests, batch.now)}
    return Decided(scheduler_version=SCHEDULER_VERSION, decisions=decisions, problems=problems)


def schedule_request(place: PlacementRequest) -> ScheduleRequest:
    """Read what a deployment asks for."""
    return ScheduleRequest(
        request_id=place.request_id,
        deployment=read_need(place.need),
        kept=tuple(KeptReplica(uid=kept.uid, ready=kept.ready, serving=kept.serving, terminating=kept.terminating) for kept in place.kept),
    )
