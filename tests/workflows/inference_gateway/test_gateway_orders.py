"""The orders of an InferenceGateway, without Temporal."""

from typing import Any

import pytest

from api_types.messages.gateway_work import RunInstallStep
from workflows.inference_gateway.state import GatewayState

LONG = "9" * 300


@pytest.mark.parametrize(
    "traefik",
    [
        {"version": LONG, "loadBalancer": "MetalLB", "metallb": {"addressPool": LONG}},
        {"version": None},
        None,
    ],
)
def test_every_previously_accepted_spec_can_be_ordered(traefik: Any) -> None:
    # An order that cannot be constructed fails the workflow task again and again.
    state = GatewayState(uid="g", spec={"backend": "Traefik", "traefik": traefik})
    order = RunInstallStep(
        uid="g",
        step="traefik",
        traefik_version=state.chart_version,
        address_pool=state.address_pool,
    )
    assert len(order.traefik_version) <= 253
