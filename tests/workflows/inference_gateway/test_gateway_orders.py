"""Messages that an InferenceGateway accepts, and its orders, without Temporal."""

from typing import Any

import pytest

from api_types.messages.gateway_work import ControlObserved, ObservedGateway, RunInstallStep
from tests.workflows.environment.serverless import Serverless
from workflows.inference_gateway.state import GatewayState
from workflows.inference_gateway.workflow import InferenceGatewayWorkflow

LONG = "9" * 300


@pytest.mark.parametrize(
    "traefik", [{"version": LONG, "loadBalancer": "MetalLB", "metallb": {"addressPool": LONG}}, {"version": None}, None]
)
def test_whatever_was_accepted_earlier_can_be_ordered(traefik: Any) -> None:
    # An order that cannot be made fails the workflow task, again and again.
    state = GatewayState(uid="g", spec={"backend": "Traefik", "traefik": traefik})
    order = RunInstallStep(uid="g", step="traefik", traefik_version=state.chart_version, address_pool=state.address_pool)
    assert len(order.traefik_version) <= 253


SEEN = ObservedGateway(reachable=True, address="10.0.0.2")


@pytest.mark.parametrize(
    ("message", "address"),
    [
        ({"gateway": SEEN}, "10.0.0.2"),
        ({"gateway": SEEN, "owner_uid": "other"}, "10.0.0.1"),
        ({"gateway": SEEN, "sequence": 1}, "10.0.0.1"),
        ({"gateway": None}, "10.0.0.1"),
    ],
    ids=["the next one", "of another gateway", "late", "without the gateway"],
)
def test_only_a_newer_observation_of_this_gateway_changes_it(
    monkeypatch: pytest.MonkeyPatch, message: dict[str, Any], address: str
) -> None:
    Serverless(monkeypatch, "inferencegateway/default")
    gateway = InferenceGatewayWorkflow(GatewayState(uid="g"))
    common = {"owner_uid": "g", "gateway_uid": "g", "run": 1}
    first = ObservedGateway(reachable=True, address="10.0.0.1")
    gateway.control_observed(ControlObserved(**common, sequence=2, gateway=first))
    gateway.control_observed(ControlObserved(**{**common, "sequence": 3, **message}))
    assert gateway.state.observed is not None
    assert gateway.state.observed.address == address
