"""The timeouts of a route, and the class of the gateway that supports them.

The tests use a real API server with the real definitions.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ObjectId
from api_types import labels
from api_types.errors import InvalidInput
from api_types.messages.gateway_work import (
    AppliedRoute,
    ApplyRoute,
    RouteEntry,
    RouteTimeouts,
)
from api_types.messages.routing import SelectedEndpoint, TimeoutSupport
from api_types.names import service_route_name
from tests.activities.routing.conftest import Control
from tests.activities.routing.test_watch import GATEWAY, Watched, watching, write_status

pytestmark = pytest.mark.testbed("shared")

ENTRIES = [
    RouteEntry(
        endpoints=[SelectedEndpoint(name="a", url="http://10.0.0.1", backend="me-a")]
    )
]
BOTH = RouteTimeouts(request="5m", backend_request="300s")


async def applied(control: Control, timeouts: RouteTimeouts | None) -> AppliedRoute:
    order = ApplyRoute(
        namespace=control.namespace,
        name="s",
        uid="u",
        entries=ENTRIES,
        timeouts=timeouts,
    )
    found: AppliedRoute = await control.run(
        control.activities.apply_service_route, order
    )
    return found


async def stored(control: Control) -> dict[str, str] | None:
    route = await control.get(
        kinds.HTTP_ROUTE, service_route_name(control.namespace, "s")
    )
    assert route
    found: dict[str, str] | None = route["spec"]["rules"][0].get("timeouts")
    return found


async def test_timeouts_come_change_and_go_with_the_order(control: Control) -> None:
    before = await applied(control, None)
    assert (before.timeouts, await stored(control)) == (None, None)
    done = await applied(control, BOTH)
    assert (done.timeouts, await stored(control)) == (
        BOTH,
        {"request": "5m", "backendRequest": "300s"},
    )
    await applied(control, RouteTimeouts(backend_request="1m30s"))
    assert await stored(control) == {"backendRequest": "1m30s"}
    after = await applied(control, None)
    assert (after.digest, after.timeouts, await stored(control)) == (
        before.digest,
        None,
        None,
    )


@pytest.mark.parametrize(
    "timeouts",
    [
        pytest.param(
            RouteTimeouts(request="1m", backend_request="61s"),
            id="longer for a backend",
        ),
        pytest.param(RouteTimeouts(request="1.5h"), id="a fraction"),
        pytest.param(RouteTimeouts(request="1s1s1s1s1s"), id="too many parts"),
    ],
)
async def test_timeouts_that_admission_rejects_are_rejected_by_the_definitions_too(
    control: Control, timeouts: RouteTimeouts
) -> None:
    with pytest.raises(InvalidInput, match="timeout"):
        await applied(control, timeouts)


@pytest.mark.parametrize(
    "timeouts",
    [
        RouteTimeouts(request="0s", backend_request="60s"),
        RouteTimeouts(request="24h", backend_request="1440m"),
    ],
)
async def test_timeouts_that_admission_accepts_are_accepted_by_the_definitions_too(
    control: Control, timeouts: RouteTimeouts
) -> None:
    await applied(control, timeouts)
    assert await stored(control) == timeouts.wire()


@asynccontextmanager
async def a_gateway_of(control: Control, name: str) -> AsyncIterator[None]:
    """Create the Gateway of a class of the test. The testbed accepts each."""
    await control.api.apply(
        {
            "apiVersion": kinds.GATEWAY.api_version,
            "kind": "Gateway",
            "metadata": {
                "name": labels.CONTROL_GATEWAY_NAME,
                "namespace": labels.SYSTEM_NAMESPACE,
            },
            "spec": {
                "gatewayClassName": name,
                "listeners": [{"name": "web", "protocol": "HTTP", "port": 8000}],
            },
        }
    )
    try:
        yield
    finally:
        await control.api.delete(
            ObjectId(
                kinds.GATEWAY, labels.SYSTEM_NAMESPACE, labels.CONTROL_GATEWAY_NAME
            )
        )
        await control.api.delete(ObjectId(kinds.GATEWAY_CLASS, "", name))


async def lists(control: Control, name: str, *features: str) -> None:
    """Write the features of a class like its controller does."""
    status = {"supportedFeatures": [{"name": each} for each in features]}
    await write_status(
        control, ObjectId(kinds.GATEWAY_CLASS, "", name), "gatewayclasses", status
    )


async def test_the_gateway_is_notified_of_the_features_of_its_class_and_of_changes(
    control: Control,
) -> None:
    name = f"c-{secrets.token_hex(4)}"

    async def told(watched: Watched, **support: bool | str) -> None:
        want = TimeoutSupport.model_validate({"gateway_class": name, **support})
        await watched.until(
            GATEWAY, lambda each: bool(each.gateway and each.gateway.timeouts == want)
        )

    async with a_gateway_of(control, name), watching(control.api) as watched:
        await told(watched, problem="it does not exist")
        manifest = {
            "apiVersion": kinds.GATEWAY_CLASS.api_version,
            "kind": "GatewayClass",
            "metadata": {"name": name},
        }
        await control.api.apply(
            {**manifest, "spec": {"controllerName": "example.com/gateway"}}
        )
        await told(watched)
        await lists(
            control,
            name,
            "HTTPRoute",
            "HTTPRouteBackendTimeout",
            "HTTPRouteRequestTimeout",
        )
        await told(watched, request=True, backend_request=True)
        await lists(control, name, "HTTPRouteBackendTimeout")
        await told(watched, backend_request=True)
        await control.api.delete(ObjectId(kinds.GATEWAY_CLASS, "", name))
        await told(watched, problem="it does not exist")
