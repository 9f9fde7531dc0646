"""The Middleware of a service, and the route that references it.

Without retries a route is unchanged from the release before them.
"""

import hashlib
import json

from activities.observe.control import names_middleware
from activities.render.objects.edge import header_filters
from activities.render.objects.manifest import RenderOwner
from activities.render.services.retries import BODY_BYTES_MAX, service_middleware
from activities.render.services.route import RETRY_LATER, service_route
from activities.render.services.route_plan import RoutedBackend
from api_types.messages.gateway_work import ApplyRoute, RouteEntry, RouteRetries
from api_types.messages.routing import SelectedEndpoint
from api_types.names import service_route_name

OWNER = RenderOwner("ModelService", "ml", "chat", "u", generation=0)
NAME = service_route_name("ml", "chat")
BACKENDS = [
    RoutedBackend(
        SelectedEndpoint(
            name="a",
            url="https://api.example.com/v1",
            backend="me-a",
            rewrite_path="/v1/",
        ),
        2,
    )
]
FILTER = {
    "type": "ExtensionRef",
    "extensionRef": {"group": "traefik.io", "kind": "Middleware", "name": NAME},
}
# The hash of the manifest as JSON, computed by the previous release.
BEFORE = "3fda68587b431015e24949c83df4f05a0ad17e1a2550b4b25a228929ed361cc0"


def test_without_retries_a_route_is_byte_for_byte_as_before() -> None:
    rendered = json.dumps(service_route(OWNER, BACKENDS).manifest)
    assert hashlib.sha256(rendered.encode()).hexdigest() == BEFORE, rendered
    # The order of a service without retries is unchanged too, so that an upgrade
    # applies nothing again.
    assert ApplyRoute(
        namespace="ml", name="chat", uid="u", entries=[RouteEntry()]
    ).wire() == {
        "namespace": "ml",
        "name": "chat",
        "uid": "u",
        "entries": [{"weight": 1, "endpoints": []}],
    }


def test_the_rule_references_the_middleware_while_it_has_backends() -> None:
    named, empty = (
        service_route(OWNER, BACKENDS, middleware=True).manifest,
        service_route(OWNER, [], middleware=True).manifest,
    )
    assert named["spec"]["rules"][0]["filters"] == [header_filters()[0], FILTER]
    assert empty["spec"]["rules"][0]["filters"] == [RETRY_LATER]
    assert (
        names_middleware(named),
        names_middleware(empty),
        names_middleware(None),
    ) == (True, False, False)


def test_a_middleware_counts_the_first_attempt_and_retries_a_post_only_after_a_code() -> (
    None
):
    plain = service_middleware(
        OWNER, RouteRetries(attempts=2, backoff_milliseconds=0)
    ).manifest
    assert (
        plain["kind"],
        plain["metadata"]["name"],
        plain["metadata"]["namespace"],
    ) == ("Middleware", NAME, "ml")
    assert plain["metadata"]["annotations"]["modelplane.ai/owner-name"] == "chat"
    assert plain["spec"] == {"retry": {"attempts": 3}}
    assert service_middleware(
        OWNER, RouteRetries(attempts=1, codes=[503, 429], backoff_milliseconds=250)
    ).manifest["spec"] == {
        "retry": {
            "attempts": 2,
            "status": ["503", "429"],
            "initialInterval": "250ms",
            "retryNonIdempotentMethod": True,
            "maxRequestBodyBytes": BODY_BYTES_MAX,
        }
    }
