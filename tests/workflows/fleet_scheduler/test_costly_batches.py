"""Requests that a batch has no time for are decided in the next batch, and none is lost."""

import sys
from types import SimpleNamespace

import pytest

from api_types.messages.scheduling import PlacementRequest
from scheduler import to_wire
from tests.scheduler.builders import NOW, cluster, deployment, fleet
from workflows.fleet_scheduler.cache import cache_registry
from workflows.fleet_scheduler.decide_activity import DecideBatch, decide_batch


@pytest.mark.parametrize(
    ("limit", "value"), [("BATCH_WORK_MAX", 0), ("BATCH_SECONDS_MAX", -1.0)]
)
def test_undecided_requests_are_deferred(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    world = fleet(cluster("a", 4))
    monkeypatch.setattr(cache_registry, "find", lambda *_: SimpleNamespace(fleet=world))
    # The package has a function with the name of this module.
    monkeypatch.setattr(sys.modules["scheduler.decide"], limit, value)
    views = [deployment(name=f"d-{n}") for n in range(3)]
    places = [
        PlacementRequest(
            request_id=f"ask-{n}",
            namespace=view.namespace,
            name=view.name,
            uid=view.uid,
            generation=1,
            wanted=1,
            need=to_wire(view),
        )
        for n, view in enumerate(views)
    ]
    decided = decide_batch(
        DecideBatch(run_id="run", version=1, now=NOW, requests=places)
    )
    assert list(decided.decisions) == ["ask-0"]
    assert decided.deferred == ["ask-1", "ask-2"]
    assert decided.problems == {}
