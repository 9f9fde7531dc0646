"""The recorded decisions of a batch, and the requests that are decided later.

These tests need no server.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from api_types.errors import StaleSnapshot
from api_types.messages.scheduling import PlacementRequest
from scheduler import Fleet
from tests.scheduler.builders import cluster, deployment, pool
from tests.workflows.fleet_scheduler.requests import place
from workflows.fleet_scheduler import recorded_decisions
from workflows.fleet_scheduler.cache import cache_registry
from workflows.fleet_scheduler.decide_activity import DecideBatch, Decided, decide_batch
from workflows.fleet_scheduler.recorded_decisions import DecisionReader

NOW = 1_700_000_000_000
FIRST, SECOND = (place(deployment(name=name, want=2)) for name in ("first", "second"))


class LiveCache:
    """The cache that the activity reads."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def carried_extras(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    made.put_cluster(cluster("a", pool("p", 3)))
    return made


def read(
    fleet: Fleet,
    requests: Sequence[PlacementRequest],
    result: Decided | None = None,
    error: Exception | None = None,
) -> DecisionReader:
    reader = DecisionReader(lambda *_: True, again=True)
    reader.begin(
        DecideBatch(
            run_id="r", version=fleet.version, now=NOW, requests=list(requests)
        ),
        fleet,
    )(result, error)
    return reader


def decided(fleet: Fleet, *requests: PlacementRequest) -> Decided:
    cache = LiveCache(fleet)
    cache_registry.register("r", cache)
    return decide_batch(
        DecideBatch(run_id="r", version=fleet.version, now=NOW, requests=list(requests))
    )


def test_a_request_is_decided_again_after_its_predecessors_in_the_batch(
    fleet: Fleet,
) -> None:
    found = read(fleet, [FIRST, SECOND], decided(fleet, FIRST, SECOND)).found
    assert [
        (each.batch, each.position, each.request.name, each.now) for each in found
    ] == [(1, 1, "first", NOW), (1, 2, "second", NOW)]
    assert [each.recorded for each in found] == [each.again for each in found]
    assert [
        each.recorded.decision and each.recorded.decision.shortfall for each in found
    ] == [0, 1]
    assert found[0].inputs != found[1].inputs


def test_a_deferred_request_is_no_part_of_the_batch(
    fleet: Fleet,
) -> None:
    result = decided(fleet, FIRST, SECOND)
    del result.decisions[SECOND.request_id]
    assert [
        each.request.name for each in read(fleet, [FIRST, SECOND], result).found
    ] == ["first"]


def test_only_the_failed_request_of_a_batch_has_a_problem(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = ApplicationError("a bug", type="KeyError")
    (found,) = read(fleet, [FIRST], error=failure).found
    assert (found.recorded.problem, found.recorded.decision) == ("a bug", None)
    assert found.again is not None
    assert found.again.decision is not None

    def failing(*_: Any) -> Any:
        raise ValueError("a bug")

    monkeypatch.setattr(recorded_decisions, "decide", failing)
    (found,) = read(fleet, [FIRST], error=failure).found
    assert found.again == found.recorded


@pytest.mark.parametrize(
    ("requests", "error"),
    [
        ([FIRST, SECOND], ApplicationError("a bug", type="KeyError")),
        ([FIRST], ApplicationError("", type=StaleSnapshot.__name__)),
    ],
    ids=[
        "several are decided again in smaller batches",
        "a request decided with another cache is decided again",
    ],
)
def test_a_batch_that_is_decided_again_counts_as_no_decision(
    fleet: Fleet, requests: list[PlacementRequest], error: Exception
) -> None:
    assert read(fleet, requests, error=error).found == []
