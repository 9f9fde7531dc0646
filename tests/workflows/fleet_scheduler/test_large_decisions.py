"""Decisions of a batch that exceed a payload.

As many as fit are charged, and the others are decided later. These tests need no
server.
"""

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow

from api_types.payloads.limits import wire_size
from tests.scheduler.builders import cluster, deployment
from tests.workflows.fleet_scheduler.cycle import LOG
from tests.workflows.fleet_scheduler.requests import place
from workflows.fleet_scheduler import decide_activity
from workflows.fleet_scheduler.cache import cache_registry
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import SchedulerState
from workflows.fleet_scheduler.calls import decide_requests
from workflows.fleet_scheduler.controller import SchedulerController
from workflows.fleet_scheduler.decide_activity import DecideBatch, Decided, decide_batch
from workflows.fleet_scheduler.inbox import Inbox

NAMES = [f"d{number:02}" for number in range(10)]
SMALL = 4_000


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> SchedulerCache:
    """Return the cache of a run that decides requests in this process."""
    run_id = uuid.uuid4().hex

    async def decide(_: Any, batch: DecideBatch, **__: Any) -> Decided:
        return decide_batch(batch)

    monkeypatch.setattr(workflow, "info", lambda: SimpleNamespace(run_id=run_id))
    monkeypatch.setattr(workflow, "execute_local_activity", decide)
    made = SchedulerCache(SchedulerState(), lambda: 1_700_000_000_000)
    made.fleet.put_cluster(cluster("a", len(NAMES)))
    cache_registry.register(run_id, made)
    return made


def test_many_requests_are_decided_once_each_although_few_decisions_fit(
    cache: SchedulerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide_activity, "LIST_BYTES_MAX", SMALL)
    controller = SchedulerController(cache, Inbox(cache, LOG), LOG)
    for name in NAMES:
        cache.queue.add(place(deployment(name=name)))
    rounds, decided = 0, list[str]()
    while cache.state.queue:
        batch = controller.next_batch()
        result = asyncio.run(decide_requests(cache, batch.requests))
        assert wire_size(result.decisions) <= SMALL
        controller.decided(batch, result)
        decided += [
            request.name
            for request in batch.requests
            if request.request_id in result.decisions
        ]
        rounds += 1
    assert decided == NAMES
    assert sorted(entry.deployment for entry in cache.fleet.entries()) == NAMES
    assert rounds > 1


def test_a_decision_larger_than_a_payload_fails_only_its_own_request(
    cache: SchedulerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide_activity, "LIST_BYTES_MAX", 100)
    (request,) = [place(deployment(name=name)) for name in NAMES[:1]]
    result = asyncio.run(decide_requests(cache, [request]))
    assert (result.decisions, result.deferred) == ({}, [])
    assert "larger than the 100 bytes" in result.problems[request.request_id]


def test_a_request_larger_than_any_manifest_allows_is_not_decided(
    cache: SchedulerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = (place(deployment(name=name)) for name in NAMES[:2])
    monkeypatch.setattr(decide_activity, "NEED_BYTES_MAX", wire_size(small.need))
    large = large.model_copy(update={"need": {**large.need, "more": "x"}})
    result = asyncio.run(decide_requests(cache, [small, large]))
    assert (list(result.decisions), list(result.problems)) == (
        [small.request_id],
        [large.request_id],
    )
