"""The Middleware of a service, and the route that names it; without retries a route is what it was before there were any."""

import hashlib
import json

from activities.observe.control import names_middleware
from activities.render.objects.manifest import Owner
from activities.render.services.retries import BODY_BYTES_MAX, service_middleware
from activities.render.services.route import service_route
from activities.render.services.route_plan import RoutedBackend
from api_types.messages.gateway_work import ApplyRoute, RouteEntry, RouteRetries
from api_types.messages.routing import SelectedEndpoint
from api_types.names import service_route_name

OWNER = Owner("ModelService", "ml", "chat", "u", generation=0)
NAME = service_route_name("ml", "chat")
BACKENDS = [RoutedBackend(SelectedEndpoint(name="a", url="https://api.example.com/v1", backend="me-a", rewrite_path="/v1/"), 2)]
FILTER = {"type": "ExtensionRef", "extensionRef": {"group": "traefik.io", "kind": "Middleware", "name": NAME}}
# Of the manifest as JSON, made by the release before.
BEFORE = "2431b38da0828e135a53cad909ce3581dd3392fe9a8b4f2222559ea677372a2f"


def test_without_retries_a_route_is_byte_for_byte_as_before() -> None:
    rendered = json.dumps(service_route(OWNER, BACKENDS).manifest)
    assert hashlib.sha256(rendered.encode()).hexdigest() == BEFORE, rendered
    # What a service is ordered by is as before too, so that nothing is applied again after an upgrade.
    assert ApplyRoute(namespace="ml", name="chat", uid="u", entries=[RouteEntry()]).wire() == {
        "namespace": "ml",
        "name": "chat",
        "uid": "u",
        "entries": [{"weight": 1, "endpoints": []}],
    }


def test_the_rule_names_the_middleware_while_there_is_something_to_send_to() -> None:
    named, empty = service_route(OWNER, BACKENDS, middleware=True).manifest, service_route(OWNER, [], middleware=True).manifest
    assert named["spec"]["rules"][0]["filters"] == [FILTER]
    assert "filters" not in empty["spec"]["rules"][0]
    assert (names_middleware(named), names_middleware(empty), names_middleware(None)) == (True, False, False)


def test_a_middleware_counts_the_first_attempt_and_repeats_a_post_only_where_a_code_asks_for_it() -> None:
    plain = service_middleware(OWNER, RouteRetries(attempts=2, backoff_milliseconds=0)).manifest
    assert (plain["kind"], plain["metadata"]["name"], plain["metadata"]["namespace"]) == ("Middleware", NAME, "ml")
    assert plain["metadata"]["annotations"]["modelplane.ai/owner-name"] == "chat"
    assert plain["spec"] == {"retry": {"attempts": 3}}
    assert service_middleware(OWNER, RouteRetries(attempts=1, codes=[503, 429], backoff_milliseconds=250)).manifest["spec"] == {
        "retry": {
            "attempts": 2,
            "status": ["503", "429"],
            "initialInterval": "250ms",
            "retryNonIdempotentMethod": True,
            "maxRequestBodyBytes": BODY_BYTES_MAX,
        }
    }
