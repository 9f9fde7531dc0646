"""The status of a service whose route others have deleted.

Pure, and with the workflow outside Temporal.
"""

from datetime import timedelta

import pytest

from api_types.messages.gateway_work import (
    AppliedRoute,
    BackendShare,
    ObservedServiceRoute,
)
from api_types.messages.routing import EntryEndpoints, GatewayChanged, ServiceEndpoints
from tests.workflows.environment.serverless import NOW, Serverless
from workflows.entity import backoff
from workflows.entity.conditions import condition_of
from workflows.entity.registering.gateway_user import FollowedGateway
from workflows.model_service.state import ServiceState
from workflows.model_service.workflow import ModelServiceWorkflow

SEEN = ObservedServiceRoute(
    present=True, generation=1, digest="d", accepted=True, resolved=True
)
DELETED = ObservedServiceRoute(present=False)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> ModelServiceWorkflow:
    """Return a service whose route the gateway has accepted."""
    Serverless(monkeypatch, "modelservice/ml/qwen")
    state = ServiceState(
        uid="u",
        spec={"endpoints": [{"selector": {"matchLabels": {}}}]},
        generation=1,
        report_sequence=1,
        gateway=FollowedGateway(
            registered=True,
            known=GatewayChanged(
                uid="g", sequence=1, connected=True, address="10.0.0.1"
            ),
        ),
        selected=ServiceEndpoints(
            uid="u", sequence=1, version=1, entries=[EntryEndpoints(matched=1, ready=1)]
        ),
        applied=AppliedRoute(
            name="r",
            generation=1,
            digest="d",
            backends=[BackendShare(endpoint="a", weight=1)],
        ),
        applied_digest="w",
        observed=SEEN,
    )
    made = ModelServiceWorkflow(state)
    made.conclude()
    assert ready(made) == ("True", "RouteConfigured")
    return made


def ready(service: ModelServiceWorkflow) -> tuple[str, str]:
    found = condition_of(service.state.conditions, "RoutingReady")
    assert found
    return found.status, found.reason


def lost_for(service: ModelServiceWorkflow, time: timedelta) -> None:
    service.state.observed, service.state.drift_since = (
        DELETED,
        (NOW - time).isoformat(),
    )
    service.context.requeue_time = None
    service.conclude()


def test_an_externally_deleted_route_is_not_ready_once_that_is_certain(
    service: ModelServiceWorkflow,
) -> None:
    lost_for(service, timedelta(seconds=1))
    assert (ready(service), service.context.requeue_time) == (
        ("True", "RouteConfigured"),
        NOW - timedelta(seconds=1) + backoff.repair(0),
    )
    lost_for(service, backoff.repair(0))
    assert ready(service) == ("False", "Configuring")
    found = condition_of(service.state.conditions, "Ready")
    assert found
    assert found.message == "another client deleted the HTTPRoute; it is applied again"
    service.state.observed, service.state.drift_since = SEEN, ""
    service.conclude()
    assert ready(service) == ("True", "RouteConfigured")


def test_an_externally_changed_route_is_still_a_route(
    service: ModelServiceWorkflow,
) -> None:
    service.state.drift_since = (NOW - timedelta(minutes=5)).isoformat()
    service.state.observed = SEEN.model_copy(update={"digest": "other"})
    service.conclude()
    assert ready(service) == ("True", "RouteConfigured")
