"""The work of the scheduler's workflow between two waits, without a server."""

import json
import logging
import uuid
from typing import Any

from api_types.messages.scheduling import PlacementRequest
from workflows.fleet_scheduler.cache import cache_registry
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import ReceivedSignal
from workflows.fleet_scheduler.controller import SchedulerController
from workflows.fleet_scheduler.decide_activity import DecideBatch, decide_batch
from workflows.fleet_scheduler.inbox import Inbox

LOG = logging.getLogger(__name__)


def run_cycle(
    cache: SchedulerCache, *received: tuple[str, Any]
) -> list[PlacementRequest]:
    """Read these signals and decide all queued requests; return the decided ones in order."""
    cache.state.inbox += [ReceivedSignal(name, payload) for name, payload in received]
    while Inbox(cache, LOG).read():
        pass
    decided: list[PlacementRequest] = []
    run_id = uuid.uuid4().hex
    cache_registry.register(run_id, cache)
    controller = SchedulerController(cache, Inbox(cache, LOG), LOG)
    while cache.state.queue:
        batch = controller.next_batch()
        answered = decide_batch(
            DecideBatch(
                run_id=run_id,
                version=cache.fleet.version,
                now=cache.now(),
                requests=batch.requests,
            )
        )
        json.loads(answered.model_dump_json(by_alias=True))
        assert not answered.problems
        controller.decided(batch, answered)
        decided += [*batch.requests, *batch.repeated]
    return decided
