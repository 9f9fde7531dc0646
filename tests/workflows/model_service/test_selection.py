"""When a service without endpoints gets a warning, and its condition, with the workflow
outside Temporal.
"""

from datetime import datetime, timedelta
from typing import Any

import pytest

from api_types.messages.gateway_work import AppliedRoute
from api_types.messages.routing import EntryEndpoints, GatewayChanged, ServiceEndpoints
from tests.workflows.environment.serverless import NOW, Serverless
from workflows.entity.conditions import condition_of
from workflows.entity.registering.gateway_user import FollowedGateway
from workflows.model_service.state import UNMATCHED_AFTER, ServiceState
from workflows.model_service.workflow import ModelServiceWorkflow

SPEC = {
    "endpoints": [{"selector": {"matchLabels": {"modelplane.ai/deployment": "qwen"}}}]
}
WARNING = (
    "Warning",
    "NoEndpoints",
    "No ModelEndpoints matched the configured selectors",
)
NO_ROUTE = "no published endpoint matches; the gateway answers 503"


class Service:
    """A service with a gateway. A test sets its selected endpoints and its clock."""

    def __init__(self, temporal: Serverless) -> None:
        known = GatewayChanged(uid="g", sequence=1, connected=True, address="10.0.0.1")
        state = ServiceState(
            uid="u",
            spec=SPEC,
            generation=1,
            report_sequence=1,
            gateway=FollowedGateway(registered=True, known=known),
        )
        self.temporal = temporal
        self.workflow = ModelServiceWorkflow(state)

    def passes(self, *, minutes: float = 0) -> None:
        self.temporal.now += timedelta(minutes=minutes)
        self.workflow.context.requeue_time = None
        self.workflow.conclude()

    def selects(self, matched: int) -> None:
        state = self.workflow.state
        version = state.selected.version + 1 if state.selected else 1
        state.selected = ServiceEndpoints(
            uid="u",
            sequence=1,
            version=version,
            entries=[EntryEndpoints(matched=matched, ready=matched)],
        )
        self.passes()

    def next_pass(self) -> datetime | None:
        return self.workflow.context.requeue_time

    def warnings(self) -> list[Any]:
        return [
            (each.type, each.reason, each.message)
            for each in self.workflow.state.events
        ]

    def said(self, condition_type: str = "RoutingReady") -> str:
        found = condition_of(self.workflow.state.conditions, condition_type)
        return found.message if found else ""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service(Serverless(monkeypatch, "modelservice/ml/qwen"))
    made.passes()
    assert made.said() == "there is no route yet"
    return made


def test_a_new_service_without_endpoints_gets_a_warning_after_a_delay(
    service: Service,
) -> None:
    service.workflow.state.applied = AppliedRoute(name="ms-qwen")
    service.selects(0)
    assert (service.warnings(), service.said(), service.said("EndpointsResolved")) == (
        [],
        NO_ROUTE,
        WARNING[2],
    )
    assert service.next_pass() == NOW + UNMATCHED_AFTER
    service.passes(minutes=4.9)
    assert service.warnings() == []
    # No kind of pass restarts the delay.
    assert service.next_pass() == NOW + UNMATCHED_AFTER
    service.passes(minutes=0.1)
    assert service.warnings() == [WARNING]
    for minutes in (0, 1, 600):
        service.passes(minutes=minutes)
        assert (service.warnings(), service.next_pass()) == ([WARNING], None)
    assert service.workflow.state.events[0].count == 1


def test_a_new_service_whose_endpoints_arrive_in_time_gets_no_warning(
    service: Service,
) -> None:
    service.selects(0)
    service.passes(minutes=4)
    service.selects(1)
    service.passes(minutes=10)
    assert (service.warnings(), service.next_pass()) == ([], None)


def test_a_service_that_loses_all_endpoints_gets_a_warning_at_once(
    service: Service,
) -> None:
    service.selects(0)
    service.selects(1)
    service.selects(0)
    assert service.warnings() == [WARNING]
    assert service.next_pass() is None


def test_the_delay_continues_in_the_next_run(service: Service) -> None:
    service.selects(0)
    service.workflow = ModelServiceWorkflow(
        service.workflow.state.model_copy(deep=True)
    )
    service.passes(minutes=4)
    assert (service.warnings(), service.next_pass()) == ([], NOW + UNMATCHED_AFTER)
    service.passes(minutes=1)
    assert service.warnings() == [WARNING]
