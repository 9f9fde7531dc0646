"""The objects of a service on a control gateway that is Envoy Gateway."""

import json
from collections.abc import Sequence

import pytest

from activities.render.objects.edge import blocking_rule
from activities.render.objects.manifest import Json, RenderOwner
from activities.render.services.envoy import envoy_objects
from activities.render.services.route_plan import plan_backends
from api_types.messages.gateway_work import RouteEntry, RouteRetries, RouteTimeouts
from api_types.messages.routing import SelectedEndpoint

OWNER = RenderOwner("ModelService", "ml", "chat", "u", generation=0)
BY_ADDRESS = SelectedEndpoint(
    name="eu", url="http://10.0.0.1/ml/eu/", backend="me-eu", cluster="eu-1"
)
BY_NAME = SelectedEndpoint(
    name="us", url="http://lb.example.com:8080/ml/us/", backend="me-us", cluster="us-1"
)
ENDPOINTS = {
    "eu": {
        "hostname": "eu.ml.endpoint.modelplane.internal",
        "fqdn": {"hostname": "me-eu.ml.svc.cluster.local", "port": 80},
    },
    "us": {
        "hostname": "us.ml.endpoint.modelplane.internal",
        "fqdn": {"hostname": "lb.example.com", "port": 8080},
    },
}


def rendered(
    *entries: RouteEntry,
    retries: RouteRetries | None = None,
    timeouts: RouteTimeouts | None = None,
) -> tuple[dict[str, list[Json]], Json]:
    """Return the specs of the parts by kind, and the spec of the route."""
    parts, route = envoy_objects(OWNER, plan_backends(entries), retries, timeouts)
    specs: dict[str, list[Json]] = {}
    for part in parts:
        specs.setdefault(part.manifest["kind"], []).append(part.manifest["spec"])
    return specs, route.manifest["spec"]


def entry(
    *endpoints: SelectedEndpoint, weight: int = 1, standby: bool | None = None
) -> RouteEntry:
    return RouteEntry(weight=weight, endpoints=list(endpoints), standby=standby)


def test_the_endpoints_of_a_rule_differ_by_address_and_host_only() -> None:
    specs, route = rendered(entry(BY_ADDRESS, BY_NAME))
    assert specs["Backend"] == [{"endpoints": [ENDPOINTS["eu"], ENDPOINTS["us"]]}]
    rule, blocking = route["rules"]
    assert blocking == blocking_rule("/ml/chat")
    (reference,) = rule["backendRefs"]
    # With a filter of its own, a backend would become a cluster of its own in Envoy,
    # and Envoy would not retry a request there.
    assert set(reference) == {"group", "kind", "name", "weight"}
    path, host = rule["filters"]
    assert path["urlRewrite"]["path"]["replacePrefixMatch"] == "/"
    assert host["extensionRef"]["kind"] == "HTTPRouteFilter"
    assert specs["HTTPRouteFilter"] == [
        {"urlRewrite": {"hostname": {"type": "Backend"}}}
    ]


def test_each_entry_is_a_backend_with_its_share_and_a_standby_falls_back() -> None:
    specs, route = rendered(
        entry(BY_ADDRESS, BY_NAME, weight=90),
        entry(BY_ADDRESS.model_copy(update={"name": "canary"}), weight=10),
        entry(BY_NAME.model_copy(update={"name": "late"}), standby=True),
    )
    assert [each.get("fallback") for each in specs["Backend"]] == [None, None, True]
    stable, canary, _ = (each["weight"] for each in route["rules"][0]["backendRefs"])
    assert stable == 9 * canary


@pytest.mark.parametrize(
    ("retries", "attempts", "codes"),
    [
        (None, 3, [429, 500, 502, 503, 504]),
        (RouteRetries(attempts=1, codes=[503]), 1, [503]),
    ],
)
def test_the_policy_retries_elsewhere_and_ejects_failing_endpoints(
    retries: RouteRetries | None, attempts: int, codes: Sequence[int]
) -> None:
    specs, _ = rendered(entry(BY_ADDRESS), retries=retries)
    (policy,) = specs["BackendTrafficPolicy"]
    assert policy["retry"]["numRetries"] == attempts
    assert policy["retry"]["retryOn"]["httpStatusCodes"] == codes
    assert policy["loadBalancer"] == {"type": "LeastRequest"}
    passive = policy["healthCheck"]["passive"]
    assert passive["maxEjectionPercent"] == 100
    assert passive["splitExternalLocalOriginErrors"] is True


@pytest.mark.parametrize(
    ("timeouts", "request_seconds", "of_a_try"),
    [
        (None, "0s", None),
        (RouteTimeouts(request="300s"), "300s", None),
        (RouteTimeouts(request="300s", backend_request="60s"), "300s", "60s"),
    ],
)
def test_no_limit_is_set_unless_the_spec_has_one(
    timeouts: RouteTimeouts | None, request_seconds: str, of_a_try: str | None
) -> None:
    specs, route = rendered(entry(BY_ADDRESS), timeouts=timeouts)
    (policy,) = specs["BackendTrafficPolicy"]
    assert policy["timeout"]["http"]["requestTimeout"] == request_seconds
    assert policy["retry"]["perRetry"].get("timeout") == of_a_try
    # A timeout of the rule would replace the timeouts of the policy.
    assert "timeouts" not in route["rules"][0]


def test_without_endpoints_the_gateway_answers_503_in_the_form_of_openai() -> None:
    specs, route = rendered(entry())
    assert set(specs) == {"HTTPRouteFilter"}
    (rule,) = route["rules"]
    assert "backendRefs" not in rule
    (answer,) = (each["directResponse"] for each in specs["HTTPRouteFilter"])
    assert answer["statusCode"] == 503
    assert answer["header"]["set"] == [{"name": "retry-after", "value": "5"}]
    error = json.loads(answer["body"]["inline"])["error"]
    assert (error["type"], error["code"]) == ("service_unavailable", "no_endpoint")
