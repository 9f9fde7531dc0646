"""The route of a service on a control gateway that is Envoy Gateway. Pure."""

from typing import Any

import pytest

from api_types.messages.routing import (
    EntryEndpoints,
    GatewayBackend,
    GatewayChanged,
    SelectedEndpoint,
    ServiceEndpoints,
)
from tests.workflows.environment.serverless import NOW
from workflows.entity.registering.gateway_user import FollowedGateway
from workflows.model_service import decisions, verdicts
from workflows.model_service.state import ServiceState

REPLICA = SelectedEndpoint(
    name="eu", url="http://10.0.0.1/", backend="me-eu", cluster="eu"
)
EXTERNAL = SelectedEndpoint(
    name="openai", url="https://api.example.com/", backend="me-o"
)


def a_state(backend: GatewayBackend, *endpoints: SelectedEndpoint) -> ServiceState:
    """Return a service with these endpoints first, and a replica on standby."""
    selector: dict[str, Any] = {"selector": {"matchLabels": {}}}
    known = GatewayChanged(
        uid="g", sequence=1, connected=True, address="10.0.0.9", backend=backend
    )
    selected = ServiceEndpoints(
        uid="u",
        sequence=1,
        version=1,
        entries=[
            EntryEndpoints(matched=1, ready=1, endpoints=list(endpoints)),
            EntryEndpoints(matched=1, ready=1, standby=True, endpoints=[REPLICA]),
        ],
    )
    return ServiceState(
        uid="u",
        spec={"endpoints": [selector, {**selector, "priority": 1}]},
        gateway=FollowedGateway(registered=True, known=known),
        selected=selected,
        report_sequence=1,
    )


def test_only_envoy_falls_back_to_the_standby() -> None:
    found = {}
    for backend in ("Envoy", "Traefik"):
        wanted = decisions.wanted_route(a_state(backend, REPLICA), "ml", "s")
        assert wanted
        found[backend] = wanted.route
    assert found["Envoy"].gateway == "Envoy"
    assert [each.standby for each in found["Envoy"].entries] == [None, True]
    assert [len(each.endpoints) for each in found["Envoy"].entries] == [1, 1]
    assert "gateway" not in found["Traefik"].wire()
    assert [len(each.endpoints) for each in found["Traefik"].entries] == [1, 0]


@pytest.mark.parametrize("backend", ["Envoy", "Traefik"])
def test_an_endpoint_of_a_user_is_not_routed_by_envoy_and_the_service_says_so(
    backend: GatewayBackend,
) -> None:
    state = a_state(backend, REPLICA, EXTERNAL)
    wanted = decisions.wanted_route(state, "ml", "s")
    assert wanted
    routed = [each.name for each in wanted.route.entries[0].endpoints]
    verdict = verdicts.routing_ready(state, NOW)
    if backend == "Envoy":
        assert routed == ["eu"]
        assert verdict.reason == "EndpointsUnsupported"
        assert "requests do not go to ModelEndpoint openai" in verdict.message
    else:
        assert routed == ["eu", "openai"]
        assert verdict.reason == "Configuring"
