"""The objects of a ModelService on a control gateway that is Envoy Gateway.

Envoy retries a request elsewhere, ejects failing endpoints and falls back to other
priorities only among the endpoints of one cluster of its own. Envoy Gateway makes one
of a rule if its backends have no filters and equal address types. So the endpoints
differ by address and host alone: the rule replaces the service's path by `/`, and the
host by that of the endpoint which it tries.
"""

import json
from collections.abc import Sequence
from itertools import groupby

from activities.render.objects import components
from activities.render.objects.edge import blocking_rule
from activities.render.objects.manifest import (
    Json,
    RenderedObject,
    RenderOwner,
    compact,
    labelled_item,
)
from activities.render.services.endpoint import Backend
from activities.render.services.route import (
    RETRY_AFTER_SECONDS,
    route_manifest,
    service_path,
)
from activities.render.services.route_plan import RoutedBackend
from api_types import names
from api_types.messages.gateway_work import RouteRetries, RouteTimeouts
from api_types.messages.routing import SelectedEndpoint
from api_types.pins import apiversions
from api_types.text.endpoint_url import read_url

BACKEND, POLICY, FILTER = "service-backend", "service-policy", "service-filter"
# Names of Services on the control cluster end in it.
_CLUSTER_DOMAIN = "svc.cluster.local"
# The retries of a service whose spec has none. A request may be sent again after any
# failure before the first byte of its response: a generation has no effect that a second
# one would double.
_ATTEMPTS, _CODES = 3, [429, 500, 502, 503, 504]
_TRIGGERS = ("connect-failure", "refused-stream", "reset", "retriable-status-codes")
# The number of attempts in a priority before the next priority is tried.
_ATTEMPTS_PER_PRIORITY = 2
CONNECT_SECONDS = 3
# An endpoint is ejected after so many failures in a row, for a time that grows with
# each ejection. All endpoints of a service may be ejected: below the panic threshold
# Envoy ignores ejections.
_FAILURES = 3
_EJECTION_SECONDS = 10
_EJECTED_PERCENT_MAX = 100
_PANIC_PERCENT = 20


def envoy_objects(
    owner: RenderOwner,
    backends: Sequence[RoutedBackend],
    retries: RouteRetries | None,
    timeouts: RouteTimeouts | None,
) -> tuple[list[RenderedObject], RenderedObject]:
    """Return the objects that the route of a service refers to, and the route.

    The policy refers to the route, and is among the first so that the route has it from
    its beginning. Without backends the gateway answers 503 with Retry-After and an error
    in the form of OpenAI's API.
    """
    groups = [list(found) for _, found in groupby(backends, lambda each: each.entry)]
    parts = [_backend(owner, group) for group in groups]
    name = names.service_route_name(owner.namespace, owner.name)
    path = service_path(owner.namespace, owner.name)
    own = {
        "type": "ExtensionRef",
        "extensionRef": {
            "group": apiversions.ENVOY_GROUP,
            "kind": "HTTPRouteFilter",
            "name": name,
        },
    }
    rewrite = {
        "type": "URLRewrite",
        "urlRewrite": {
            "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}
        },
    }
    rules = [
        compact(
            matches=[{"path": {"type": "PathPrefix", "value": path}}],
            filters=[rewrite, own] if groups else [own],
            backendRefs=[
                {
                    "group": apiversions.ENVOY_GROUP,
                    "kind": "Backend",
                    "name": part.manifest["metadata"]["name"],
                    "weight": sum(each.weight for each in group),
                }
                for part, group in zip(parts, groups, strict=True)
            ],
        )
    ]
    if groups:
        rules.append(blocking_rule(path.rstrip("/")))
        parts.append(_policy(owner, retries, timeouts))
    parts.append(_filter(owner, _BACKEND_HOST if groups else _unavailable(owner)))
    return parts, route_manifest(owner, rules)


_BACKEND_HOST: Json = {"urlRewrite": {"hostname": {"type": "Backend"}}}


def _unavailable(owner: RenderOwner) -> Json:
    error = {
        "error": {
            "message": f"no endpoint of {owner.namespace}/{owner.name} serves now; "
            f"retry in {RETRY_AFTER_SECONDS} s",
            "type": "service_unavailable",
            "param": None,
            "code": "no_endpoint",
        }
    }
    retry_after = {"name": "retry-after", "value": str(RETRY_AFTER_SECONDS)}
    return {
        "directResponse": {
            "statusCode": 503,
            "contentType": "application/json",
            "body": {"type": "Inline", "inline": json.dumps(error)},
            "header": {"set": [retry_after]},
        }
    }


def _backend(owner: RenderOwner, group: Sequence[RoutedBackend]) -> RenderedObject:
    # Numbered by the entry, so that an entry without endpoints changes no other.
    number = group[0].entry
    spec: Json = {"endpoints": [_endpoint(owner, each.endpoint) for each in group]}
    if group[0].standby:
        spec["fallback"] = True
    return _part(owner, f"{BACKEND}-{number}", "Backend", spec, f"-{number}")


def _endpoint(owner: RenderOwner, endpoint: SelectedEndpoint) -> Json:
    url = read_url(endpoint.url)
    # Envoy Gateway accepts names and addresses in one rule only apart, and Envoy keeps
    # two endpoints of one address apart only if it resolves their names.
    by_name = Backend(url).address_type == "FQDN"
    address = (
        url.host
        if by_name
        else f"{endpoint.backend}.{owner.namespace}.{_CLUSTER_DOMAIN}"
    )
    return {
        "hostname": names.endpoint_host(owner.namespace, endpoint.name),
        "fqdn": {"hostname": address, "port": url.port},
    }


def _policy(
    owner: RenderOwner, retries: RouteRetries | None, timeouts: RouteTimeouts | None
) -> RenderedObject:
    route = {
        "group": apiversions.GATEWAY_GROUP,
        "kind": "HTTPRoute",
        "name": names.service_route_name(owner.namespace, owner.name),
    }
    attempts, codes = (
        (retries.attempts, list(retries.codes)) if retries else (_ATTEMPTS, _CODES)
    )
    backoff = (retries or RouteRetries()).backoff_milliseconds
    per_retry: Json = {"backOff": {"baseInterval": f"{max(1, backoff)}ms"}}
    if timeouts and timeouts.backend_request:
        per_retry["timeout"] = timeouts.backend_request
    spec: Json = {
        "targetRefs": [route],
        "loadBalancer": {"type": "LeastRequest"},
        "retry": {
            "numRetries": attempts,
            "numAttemptsPerPriority": _ATTEMPTS_PER_PRIORITY,
            "retryOn": {
                "triggers": list(_TRIGGERS),
                "httpStatusCodes": codes,
            },
            "perRetry": per_retry,
        },
        "healthCheck": {
            "passive": {
                "splitExternalLocalOriginErrors": True,
                "consecutiveLocalOriginFailures": _FAILURES,
                "consecutiveGatewayErrors": _FAILURES,
                "consecutive5XxErrors": _FAILURES,
                "interval": "1s",
                "baseEjectionTime": f"{_EJECTION_SECONDS}s",
                "maxEjectionPercent": _EJECTED_PERCENT_MAX,
            },
            "panicThreshold": _PANIC_PERCENT,
        },
        "timeout": {
            "tcp": {"connectTimeout": f"{CONNECT_SECONDS}s"},
            "http": {
                # Envoy's default of 15 s would cut generations.
                "requestTimeout": (timeouts and timeouts.request) or "0s",
            },
        },
    }
    return _part(owner, POLICY, "BackendTrafficPolicy", spec)


def _filter(owner: RenderOwner, spec: Json) -> RenderedObject:
    return _part(owner, FILTER, "HTTPRouteFilter", spec)


def _part(
    owner: RenderOwner, key: str, kind: str, spec: Json, suffix: str = ""
) -> RenderedObject:
    name = names.service_route_name(owner.namespace, owner.name)
    manifest: Json = {
        "apiVersion": apiversions.ENVOY,
        "kind": kind,
        "metadata": {"name": f"{name}{suffix}", "namespace": owner.namespace},
        "spec": spec,
    }
    return labelled_item(owner, key, components.ROUTING, manifest)
