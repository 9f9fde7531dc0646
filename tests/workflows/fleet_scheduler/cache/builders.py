"""Build a scheduler's cache, drive it as the workflow does, and carry it over to the next run."""

import uuid
from typing import Any

from api_types.messages.scheduling import KnownReplica, SetPolicy
from api_types.payloads import limits
from tests.workflows.fleet_scheduler.cycle import LOG, run_cycle
from workflows.fleet_scheduler.cache import cache_registry
from workflows.fleet_scheduler.cache.carry_over import (
    PackedFleet,
    PackPage,
    in_payloads,
    joined,
    pack_cache,
)
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import (
    ReceivedSignal,
    SchedulerState,
    SecondPayload,
)
from workflows.fleet_scheduler.inbox import Inbox

START = 1_700_000_000_000
MINUTE = 60_000


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ms = START

    def __call__(self) -> int:
        return self.ms


def cache_with(
    clock: Clock, *views: Any, policy: dict[str, Any] | None = None
) -> SchedulerCache:
    made = SchedulerCache(SchedulerState(), clock)
    for view in views:
        made.fleet.put_cluster(view)
    if policy:
        made.state.inbox.append(
            ReceivedSignal("set_policy", SetPolicy(policy=policy).wire())
        )
    return made


def read(made: SchedulerCache) -> bool:
    return Inbox(made, LOG).read()


def cycle(made: SchedulerCache, *orders: tuple[str, Any]) -> list[str]:
    """Process messages and decide all queued requests, as the workflow does.

    Return the deployments of the decisions.
    """
    return [
        request.name
        for request in run_cycle(
            made, *((kind, order.wire()) for kind, order in orders)
        )
    ]


def carried(made: SchedulerCache) -> SchedulerState:
    """Carry a cache over to the next run as the workflow does, through JSON."""
    run_id = uuid.uuid4().hex
    cache_registry.register(run_id, made)
    pages: list[PackedFleet] = []
    while not pages or len(pages) < pages[0].pages:
        packed = pack_cache(
            PackPage(run_id=run_id, version=made.fleet.version, page=len(pages))
        ).model_dump_json(by_alias=True)
        assert len(packed) <= limits.PAYLOAD_BYTES_MAX
        pages.append(PackedFleet.model_validate_json(packed))
    first, second = (
        payload.model_dump_json(by_alias=True)
        for payload in in_payloads(made.carried(joined(pages)))
    )
    assert max(len(first), len(second)) <= limits.PAYLOAD_BYTES_MAX
    assert len(first) + len(second) <= limits.CARRIED_BYTES_MAX
    state = SchedulerState.model_validate_json(first)
    state.take_over(SecondPayload.model_validate_json(second))
    return state


def reopened(state: SchedulerState, clock: Clock) -> SchedulerCache:
    made = SchedulerCache(state, clock)
    while made.parts_left:
        made.read_part()
    return made


def as_ordered(made: SchedulerCache, **changes: Any) -> list[KnownReplica]:
    """Return the replicas as a deployment reports them after it executed its answers,
    except updates.
    """
    return [
        KnownReplica(
            uid=e.uid, template=e.template, ready=True, serving=True
        ).model_copy(update=changes)
        for e in made.fleet.entries()
    ]
