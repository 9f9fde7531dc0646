"""An object that an operator reset: its state does not know the effects of later tasks.

These tests need no server.
"""

import asyncio

import pytest
from temporalio.exceptions import ApplicationError

from api_types.messages.delivery import SignalBatchResult
from api_types.messages.gateway_work import AppliedBackend, AppliedRoute
from api_types.messages.routing import GatewayChanged
from tests.workflows.environment.serverless import Serverless, id_of
from tests.workflows.model_replica.builders import a_replica
from workflows.entity.registering.endpoint import PublishedEndpoint
from workflows.entity.registering.gateway_user import FollowedGateway
from workflows.model_cache.state import CacheState
from workflows.model_cache.workflow import ModelCacheWorkflow
from workflows.model_endpoint import EndpointState, ModelEndpointWorkflow
from workflows.model_replica.workflow import ModelReplicaWorkflow
from workflows.model_service.state import ServiceState
from workflows.model_service.workflow import ModelServiceWorkflow

DELETED = "2026-01-01T00:00:00Z"
ROUTE = AppliedRoute(name="route", digest="d")
BACKEND = AppliedBackend(backend="backend", digest="d")
NO_CONTROL_CLUSTER = ApplicationError("none is configured", type="NoControlCluster")


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


@pytest.mark.parametrize(
    ("applied", "reset", "of_predecessors"),
    [
        (ROUTE, False, False),
        (ROUTE, True, True),
        # Its first apply would have taken over the route of a terminated service.
        (None, False, True),
        (None, True, True),
    ],
)
def test_a_service_removes_a_route_that_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
    applied: AppliedRoute | None,
    *,
    reset: bool,
    of_predecessors: bool,
) -> None:
    temporal = Serverless(monkeypatch, id_of("ModelService"))
    temporal.results = {"remove_service_route": None}
    service = ModelServiceWorkflow(
        ServiceState(uid="u", deletion_timestamp=DELETED, applied=applied)
    )
    monkeypatch.setattr(service.context, "publish", lambda: None)
    for learn in temporal.seeded if reset else ():
        learn(1)
    assert asyncio.run(service.tear_down())
    assert [
        (name, order.of_predecessors, order.middleware_left)
        for name, order in temporal.executed
    ] == [("remove_service_route", of_predecessors, of_predecessors or None)]


@pytest.mark.parametrize(
    ("applied", "reset", "of_predecessors"),
    [
        (BACKEND, False, False),
        (BACKEND, True, True),
        # Its first apply would have taken over the backend of a terminated endpoint.
        (None, False, True),
        (None, True, True),
    ],
)
def test_an_endpoint_withdraws_and_removes_what_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
    applied: AppliedBackend | None,
    *,
    reset: bool,
    of_predecessors: bool,
) -> None:
    temporal = Serverless(monkeypatch, id_of("ModelEndpoint"))
    temporal.results = {
        "signal_many": SignalBatchResult(),
        "remove_endpoint_backend": None,
    }
    published = PublishedEndpoint(applied=applied, backend_started=applied is not None)
    endpoint = ModelEndpointWorkflow(
        EndpointState(uid="u", deletion_timestamp=DELETED, endpoint=published)
    )
    for learn in temporal.seeded if reset else ():
        learn(1)
    assert asyncio.run(endpoint.tear_down()) is not of_predecessors
    published = endpoint.state.endpoint
    if of_predecessors:
        published.withdrawn = published.sequence
        assert asyncio.run(endpoint.tear_down())
    assert [
        order.of_predecessors
        for name, order in temporal.executed
        if name == "remove_endpoint_backend"
    ] == [of_predecessors]


@pytest.mark.parametrize("started", [False, True])
def test_a_service_that_never_had_a_control_cluster_leaves_no_route(
    monkeypatch: pytest.MonkeyPatch, *, started: bool
) -> None:
    temporal = Serverless(monkeypatch, id_of("ModelService"))
    temporal.results = {"remove_service_route": NO_CONTROL_CLUSTER}
    service = ModelServiceWorkflow(
        ServiceState(uid="u", deletion_timestamp=DELETED, route_started=started)
    )
    monkeypatch.setattr(service.context, "publish", lambda: None)
    assert asyncio.run(service.tear_down()) is not started


@pytest.mark.parametrize(
    ("applied", "reset", "ends"),
    [(None, False, True), (None, True, False), (BACKEND, False, False)],
)
def test_an_endpoint_that_never_had_a_control_cluster_leaves_no_backend(
    monkeypatch: pytest.MonkeyPatch,
    applied: AppliedBackend | None,
    *,
    reset: bool,
    ends: bool,
) -> None:
    temporal = Serverless(monkeypatch, id_of("ModelEndpoint"))
    temporal.results = {
        "remove_endpoint_backend": NO_CONTROL_CLUSTER,
        "signal_many": SignalBatchResult(),
    }
    published = PublishedEndpoint(
        applied=applied, backend_started=True, sequence=1, withdrawn=1
    )
    endpoint = ModelEndpointWorkflow(
        EndpointState(
            uid="u", deletion_timestamp=DELETED, endpoint=published, reset=reset
        )
    )
    assert asyncio.run(endpoint.tear_down()) is ends


@pytest.mark.parametrize("connected", [False, True])
def test_an_unusable_endpoint_withdraws_what_a_terminated_one_published(
    monkeypatch: pytest.MonkeyPatch, *, connected: bool
) -> None:
    temporal = Serverless(monkeypatch, id_of("ModelEndpoint"))
    temporal.results = {"signal_many": SignalBatchResult()}
    endpoint = ModelEndpointWorkflow(
        EndpointState(
            uid="u",
            spec={"url": "ftp://example.com"},
            gateway=FollowedGateway(
                registered=True,
                known=GatewayChanged(uid="g", sequence=1, connected=connected),
            ),
        )
    )
    asyncio.run(endpoint.reconcile())
    published = endpoint.state.endpoint
    assert (published.sequence > 0, published.backend_started) == (connected, connected)
