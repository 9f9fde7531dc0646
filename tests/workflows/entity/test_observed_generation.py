"""The observed generation that an endpoint reports, with its workflow outside Temporal."""

from typing import Any

import pytest

from tests.workflows.environment.serverless import Serverless
from workflows.entity.conditions import condition_of
from workflows.entity.registering.gateway_user import FollowedGateway
from workflows.model_endpoint import EndpointState, ModelEndpointWorkflow


async def test_a_spec_that_arrives_while_a_pass_waits_is_not_reported_as_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Serverless(monkeypatch, "modelendpoint/ml/kimi")
    state = EndpointState(
        uid="u",
        spec={"url": "http://localhost"},
        generation=1,
        gateway=FollowedGateway(registered=True),
    )
    endpoint = ModelEndpointWorkflow(state)

    async def corrected(_orders: list[Any]) -> None:
        endpoint.state.spec, endpoint.state.generation = (
            {"url": "https://api.example.com"},
            2,
        )

    monkeypatch.setattr(endpoint, "carry_out", corrected)
    await endpoint.reconcile()
    routing = condition_of(endpoint.state.conditions, "RoutingReady")
    assert routing
    # `modelplane apply --wait` ends when it sees such a failure for the generation that
    # it waits for.
    assert (routing.reason, endpoint.state.observed_generation) == ("InvalidURL", 1)
