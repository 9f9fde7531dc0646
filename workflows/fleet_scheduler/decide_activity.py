"""The local activity in which the scheduler decides.

It runs in the process of the FleetScheduler workflow and reads the cache of that
workflow. The history records its result, so a newer scoring rule never breaks an old
replay, and workflow code never evaluates a selector.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import Field
from temporalio import activity

from api_types.base import Message
from api_types.messages.scheduling import PlacementRequest
from api_types.payloads.limits import (
    LIST_BYTES_MAX,
    MANIFEST_BYTES_MAX,
    TooLargeToSend,
    wire_size,
)
from api_types.payloads.packing import compact
from scheduler import (
    SCHEDULER_VERSION,
    Decision,
    KeptReplica,
    ScheduleRequest,
    decide_some,
    read_need,
    to_wire,
)
from workflows.fleet_scheduler.cache import cache_registry
from workflows.fleet_scheduler.cache.carry_over import CacheVersion

DECIDE_NAME = "decide"
"""The name of the activity, which identifies it in a history."""

# The need of a deployment is derived from its manifest.
NEED_BYTES_MAX = 2 * MANIFEST_BYTES_MAX


class DecideBatch(CacheVersion):
    """A batch of requests against the ledger of one run at one version; `now` in ms."""

    now: int
    requests: list[PlacementRequest]


class Decided(Message):
    """The decisions by request id, and the reasons why requests cannot be decided.

    A decision is in wire form, as `packing.compact` writes it. `deferred` holds the ids
    of undecided requests: the other requests took the time of the batch, or the
    decisions do not fit into this payload. They are decided after the others are
    charged.
    """

    scheduler_version: str = ""
    decisions: dict[str, dict[str, Any]] = Field(default_factory=dict)
    problems: dict[str, str] = Field(default_factory=dict)
    deferred: list[str] = Field(default_factory=list)


# The thread of this activity is not interrupted when the workflow task times out. It
# computes values for later decisions, and an exception in between would corrupt them.
# It ends by itself, because a batch is bounded.
@activity.defn(name=DECIDE_NAME, no_thread_cancel_exception=True)
def decide_batch(batch: DecideBatch) -> Decided:
    """Decide a batch.

    The activity reads the ledger and never changes it.

    Raises:
        StaleSnapshot: this process has no cache of that run at that version.

    """
    fleet = cache_registry.find(batch.run_id, batch.version).fleet
    requests: list[ScheduleRequest] = []
    problems: dict[str, str] = {}
    for place in batch.requests:
        try:
            requests.append(schedule_request(place))
        except ValueError as error:
            problems[place.request_id] = str(error)
    decisions = decide_some(fleet, requests, batch.now)
    return _within_payload(
        decisions,
        problems,
        [request.request_id for request in requests[len(decisions) :]],
    )


def _within_payload(
    decisions: Iterable[Decision], problems: dict[str, str], undecided: Iterable[str]
) -> Decided:
    """Return the first decisions that fit into one payload.

    Each decision was made as if all earlier ones were charged, so none of those is left
    out.
    """
    fitting: dict[str, Any] = {}
    deferred: list[str] = []
    room = LIST_BYTES_MAX
    for decision in decisions:
        tree = compact(to_wire(decision))
        size = wire_size({decision.request_id: tree})
        if deferred or size > room:
            deferred.append(decision.request_id)
        else:
            fitting[decision.request_id] = tree
            room -= size
    deferred += undecided
    if deferred and not fitting:
        problems[deferred.pop(0)] = (
            f"its decision is larger than the {LIST_BYTES_MAX} bytes that can be sent"
        )
    return Decided(
        scheduler_version=SCHEDULER_VERSION,
        decisions=fitting,
        problems=problems,
        deferred=deferred,
    )


def schedule_request(place: PlacementRequest) -> ScheduleRequest:
    """Read the need of a deployment.

    Raises:
        ValueError: the need cannot be read, or is larger than any manifest allows, so
            that its answer could not be sent.

    """
    if (size := wire_size(place.need)) > NEED_BYTES_MAX:
        raise TooLargeToSend(
            f"the need of {place.namespace}/{place.name}", size, NEED_BYTES_MAX
        )
    return ScheduleRequest(
        request_id=place.request_id,
        deployment=read_need(place.need),
        kept=tuple(
            KeptReplica(
                uid=kept.uid,
                ready=kept.ready,
                serving=kept.serving,
                terminating=kept.terminating,
            )
            for kept in place.kept
        ),
    )
