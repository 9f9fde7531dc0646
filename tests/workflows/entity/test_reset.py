"""An object that an operator reset: its state does not know the effects of later tasks.

These tests need no server.
"""

import asyncio

import pytest

from api_types.messages.delivery import SignalBatchResult
from tests.workflows.environment.serverless import Serverless, id_of
from tests.workflows.model_replica.builders import a_replica
from workflows.model_cache.state import CacheState
from workflows.model_cache.workflow import ModelCacheWorkflow
from workflows.model_endpoint import EndpointState, ModelEndpointWorkflow
from workflows.model_replica.workflow import ModelReplicaWorkflow
from workflows.model_service.state import ServiceState
from workflows.model_service.workflow import ModelServiceWorkflow

DELETED = "2026-01-01T00:00:00Z"


def test_a_replica_learns_of_a_reset_from_its_new_random_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The replay of the tasks before the reset comes before the new seed."""
    temporal = Serverless(monkeypatch, id_of("ModelReplica"))
    replica = ModelReplicaWorkflow(a_replica(apply_started=False))
    assert not replica.state.may_have_objects
    for learn in temporal.seeded:
        learn(1)
    assert replica.state.may_have_objects


def test_a_uid_that_an_update_drew_before_the_new_seed_is_drawn_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The seed of the earlier run would give the uid of an object that others superseded."""
    temporal = Serverless(monkeypatch, id_of("ModelCache"))

    def after_a_reset(cache: ModelCacheWorkflow) -> str:
        for learn in temporal.seeded:
            learn(1)
        return cache.state.uid

    assert after_a_reset(ModelCacheWorkflow(CacheState(uid="carried"))) == "carried"
    assigned = ModelCacheWorkflow(CacheState())
    assigned.state.uid = "assigned"
    assert after_a_reset(assigned) == "assigned"
    cache = ModelCacheWorkflow(CacheState())
    cache._begin()
    assert cache.state.uid
    assert not after_a_reset(cache)
    cache._has_begun = True
    cache._begin()
    drawn = cache.state.uid
    assert after_a_reset(cache) == drawn


@pytest.mark.parametrize("reset", [False, True])
def test_a_service_that_was_reset_removes_a_route_that_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch, *, reset: bool
) -> None:
    temporal = Serverless(monkeypatch, id_of("ModelService"))
    temporal.results = {"remove_service_route": None}
    service = ModelServiceWorkflow(ServiceState(uid="u", deletion_timestamp=DELETED))
    monkeypatch.setattr(service.context, "publish", lambda: None)
    for learn in temporal.seeded if reset else ():
        learn(1)
    assert asyncio.run(service.tear_down())
    assert [
        (name, order.of_predecessors, order.middleware_left)
        for name, order in temporal.executed
    ] == ([("remove_service_route", True, True)] if reset else [])


@pytest.mark.parametrize("reset", [False, True])
def test_an_endpoint_that_was_reset_withdraws_and_removes_what_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch, *, reset: bool
) -> None:
    temporal = Serverless(monkeypatch, id_of("ModelEndpoint"))
    temporal.results = {
        "signal_many": SignalBatchResult(),
        "remove_endpoint_backend": None,
    }
    endpoint = ModelEndpointWorkflow(EndpointState(uid="u", deletion_timestamp=DELETED))
    for learn in temporal.seeded if reset else ():
        learn(1)
    assert asyncio.run(endpoint.tear_down()) is not reset
    published = endpoint.state.endpoint
    if reset:
        published.withdrawn = published.sequence
        assert asyncio.run(endpoint.tear_down())
    removed = [
        order.of_predecessors
        for name, order in temporal.executed
        if name == "remove_endpoint_backend"
    ]
    assert removed == ([True] if reset else [])
