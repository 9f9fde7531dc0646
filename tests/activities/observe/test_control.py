"""Records of the gateway on the control cluster."""

from typing import Any

import pytest

from activities.observe.control import (
    GATEWAY,
    ClassSeen,
    GatewaySeen,
    backend_digest,
    read_class,
    read_gateway,
)
from activities.render.objects.envoy_gateway import CONTROLLER as ENVOY_CONTROLLER


def a_gateway(accepted: str, programmed: str, *addresses: str) -> dict[str, Any]:
    conditions = [
        {"type": "Accepted", "status": accepted, "reason": "Why"},
        {"type": "Programmed", "status": programmed, "reason": "Why"},
    ]
    return {
        "metadata": {"name": "modelplane", "generation": 1},
        "status": {
            "conditions": conditions,
            "addresses": [{"value": each} for each in addresses],
        },
    }


@pytest.mark.parametrize(
    ("gateway", "expected"),
    [
        pytest.param(
            None,
            GatewaySeen(
                accepted=False, address="", message=f"{GATEWAY} does not exist"
            ),
            id="missing",
        ),
        pytest.param(
            a_gateway("False", "False"),
            GatewaySeen(
                accepted=False, address="", message=f"{GATEWAY}: Accepted is False: Why"
            ),
            id="refused",
        ),
        pytest.param(
            a_gateway("True", "False"),
            GatewaySeen(
                accepted=True, address="", message=f"{GATEWAY} has no address yet"
            ),
            id="accepted where nothing assigns an address",
        ),
        pytest.param(
            a_gateway("True", "True", "10.0.0.42"),
            GatewaySeen(accepted=True, address="10.0.0.42", message=""),
            id="accepted with an address",
        ),
        pytest.param(
            a_gateway("True", "True", "10.0.0.1", "10.0.0.2"),
            GatewaySeen(accepted=True, address="10.0.0.1", message=""),
            id="two addresses",
        ),
    ],
)
def test_the_state_of_the_gateway(
    gateway: dict[str, Any] | None, expected: GatewaySeen
) -> None:
    assert read_gateway(gateway) == expected


def test_the_class_of_a_gateway_is_known_before_it_is_accepted() -> None:
    named = {"spec": {"gatewayClassName": "traefik"}}
    assert {
        read_gateway(a_gateway(accepted, "False") | named).gateway_class
        for accepted in ("True", "False")
    } == {"traefik"}


def a_class(
    *features: Any, accepted: str = "True", observed: int = 2
) -> dict[str, Any]:
    conditions = [
        {
            "type": "Accepted",
            "status": accepted,
            "reason": "Why",
            "observedGeneration": observed,
        }
    ]
    return {
        "metadata": {"name": "c", "generation": 2},
        "status": {"conditions": conditions, "supportedFeatures": list(features)},
    }


@pytest.mark.parametrize(
    ("gateway_class", "expected"),
    [
        pytest.param(a_class(), ClassSeen(), id="none"),
        pytest.param(
            a_class({"name": "HTTPRoute"}, {"name": "HTTPRouteRequestTimeout"}),
            ClassSeen(request=True),
            id="one of them",
        ),
        pytest.param(
            a_class({"name": "HTTPRouteBackendTimeout"}),
            ClassSeen(backend_request=True),
            id="the other one",
        ),
        pytest.param(
            a_class("HTTPRouteBackendTimeout", "HTTPRouteRequestTimeout"),
            ClassSeen(request=True, backend_request=True),
            id="plain texts",
        ),
        pytest.param(
            a_class("HTTPRouteRequestTimeout", accepted="False"),
            ClassSeen(problem="Accepted is False: Why"),
            id="a class that is refused",
        ),
        pytest.param(
            a_class("HTTPRouteRequestTimeout", observed=1),
            ClassSeen(
                problem="Accepted is not reported yet for the current generation"
            ),
            id="a class that was changed",
        ),
        pytest.param(
            a_class() | {"spec": {"controllerName": ENVOY_CONTROLLER}},
            ClassSeen(request=True, backend_request=True),
            id="a class of Envoy Gateway, which lists nothing",
        ),
        pytest.param(
            a_class(accepted="False") | {"spec": {"controllerName": ENVOY_CONTROLLER}},
            ClassSeen(problem="Accepted is False: Why"),
            id="a class that Envoy Gateway refuses",
        ),
        pytest.param(
            {"metadata": {"name": "c"}},
            ClassSeen(problem="Accepted is not reported yet"),
            id="a class without a status",
        ),
    ],
)
def test_a_class_supports_the_features_that_its_controller_lists(
    gateway_class: dict[str, Any], expected: ClassSeen
) -> None:
    assert read_class(gateway_class) == expected


def test_a_backend_without_its_service_or_without_a_slice_has_no_digest() -> None:
    assert backend_digest("", ["a"]) == backend_digest("s", []) == ""
    assert backend_digest("s", ["a", "b"]) == backend_digest("s", ["b", "a"])
    assert backend_digest("s", ["a"]) != backend_digest("t", ["a"])
