"""The timeouts of a service in its route."""

import pytest

from activities.render.objects.manifest import Json, RenderOwner
from activities.render.services.route import service_route
from activities.render.services.route_plan import RoutedBackend
from api_types.messages.gateway_work import RouteTimeouts
from api_types.messages.routing import SelectedEndpoint

OWNER = RenderOwner("ModelService", "ml", "chat", "u", generation=0)
BACKENDS = [
    RoutedBackend(SelectedEndpoint(name="a", url="http://10.0.0.1", backend="me-a"), 1)
]


@pytest.mark.parametrize(
    ("timeouts", "want"),
    [
        pytest.param(None, None, id="none"),
        pytest.param(
            RouteTimeouts(request="300s"), {"request": "300s"}, id="of the request"
        ),
        pytest.param(
            RouteTimeouts(backend_request="60s"),
            {"backendRequest": "60s"},
            id="of a backend",
        ),
        pytest.param(
            RouteTimeouts(request="0s", backend_request="60s"),
            {"request": "0s", "backendRequest": "60s"},
            id="both",
        ),
    ],
)
def test_the_rule_has_the_timeouts_as_they_are_written(
    timeouts: RouteTimeouts | None, want: Json | None
) -> None:
    rule, blocking = service_route(OWNER, BACKENDS, timeouts=timeouts).manifest["spec"][
        "rules"
    ]
    assert "timeouts" not in blocking
    assert rule.get("timeouts") == want
    without, _ = service_route(OWNER, BACKENDS).manifest["spec"]["rules"]
    assert {key: value for key, value in rule.items() if key != "timeouts"} == without
