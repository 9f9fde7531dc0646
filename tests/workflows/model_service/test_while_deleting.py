"""A service under deletion, and its registration with the gateway.

These tests need no server.
"""

import asyncio

import pytest

from api_types.messages.delivery import SignalBatchResult
from tests.workflows.environment.serverless import Serverless
from workflows.entity.registering.gateway_user import FollowedGateway
from workflows.model_service.state import ServiceState
from workflows.model_service.workflow import ModelServiceWorkflow


def test_a_service_unregisters_even_after_a_check_that_knew_no_run_of_the_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, "modelservice/ml/talk")
    temporal.results = {"signal_many": SignalBatchResult()}
    state = ServiceState(
        uid="u",
        deletion_timestamp="2026-01-01T00:00:00Z",
        gateway=FollowedGateway(registered=True),
    )
    service = ModelServiceWorkflow(state)
    service.on_receivers_lost(["inferencegateway/default"])
    asyncio.run(service.gateway.leave())
    sent = [request for _, order in temporal.executed for request in order.signals]
    assert [(each.workflow_id, each.signal, each.payload["used"]) for each in sent] == [
        ("inferencegateway/default", "gateway_used", False)
    ]
