"""The HTTPRoute of a ModelService on the control gateway."""

from collections.abc import Sequence

from activities.render.objects import components
from activities.render.objects.edge import blocking_rule, header_filters
from activities.render.objects.manifest import (
    Json,
    RenderedObject,
    RenderOwner,
    compact,
    labelled_item,
)
from activities.render.services.retries import middleware_filter
from activities.render.services.route_plan import RoutedBackend
from api_types import labels, names
from api_types.messages.gateway_work import RouteTimeouts
from api_types.pins import apiversions
from api_types.text.endpoint_url import read_url

ROUTE = "service-route"
RETRY_AFTER_SECONDS = 5
RETRY_LATER: Json = {
    "type": "ResponseHeaderModifier",
    "responseHeaderModifier": {
        "set": [{"name": "retry-after", "value": str(RETRY_AFTER_SECONDS)}]
    },
}
"""The filter of a rule without backends. Without any filter Traefik answers 500, and
with this one 503.
"""


def service_path(namespace: str, service: str) -> str:
    """Return the path under which a service is reachable."""
    return f"/{namespace}/{service}/"


def service_route(
    owner: RenderOwner,
    backends: Sequence[RoutedBackend],
    *,
    middleware: bool = False,
    timeouts: RouteTimeouts | None = None,
) -> RenderedObject:
    """Return the route of a service: a rule for its path, and one that blocks paths.

    Without backends the gateway answers 503 with Retry-After. With
    `middleware` the rule references the Middleware of the service, if there are
    backends. `timeouts` are written unchanged. A gateway that does not support a
    timeout ignores it silently, so the caller checks the support.
    """
    path = service_path(owner.namespace, owner.name)
    filters: list[Json] = []
    filters.append(header_filters()[0] if backends else RETRY_LATER)
    if backends and middleware:
        filters.append(middleware_filter(owner))
    rules = [
        compact(
            matches=[{"path": {"type": "PathPrefix", "value": path}}],
            filters=filters,
            timeouts=timeouts.wire() if timeouts else None,
            backendRefs=[_backend(backend) for backend in backends],
        )
    ]
    if backends:
        rules.append(blocking_rule(path.rstrip("/")))
    return route_manifest(owner, rules)


def route_manifest(owner: RenderOwner, rules: Sequence[Json]) -> RenderedObject:
    """Return the route of a service with these rules."""
    manifest: Json = {
        "apiVersion": apiversions.GATEWAY,
        "kind": "HTTPRoute",
        "metadata": {
            "name": names.service_route_name(owner.namespace, owner.name),
            "namespace": owner.namespace,
        },
        "spec": {
            "parentRefs": [
                {
                    "name": labels.CONTROL_GATEWAY_NAME,
                    "namespace": labels.SYSTEM_NAMESPACE,
                }
            ],
            "rules": list(rules),
        },
    }
    return labelled_item(owner, ROUTE, components.ROUTING, manifest)


def _backend(backend: RoutedBackend) -> Json:
    endpoint = backend.endpoint
    url = read_url(endpoint.url)
    path = (
        {"type": "ReplacePrefixMatch", "replacePrefixMatch": endpoint.rewrite_path}
        if endpoint.rewrite_path is not None
        else None
    )
    # An external provider does not accept the name of the gateway, which clients send
    # as the host.
    rewrite = compact(path=path, hostname=url.host if url.is_name else None)
    responder = [{"name": labels.RESPONDER_HEADER, "value": endpoint.name}]
    filters: list[Json] = [
        header_filters()[1],
        {
            "type": "ResponseHeaderModifier",
            "responseHeaderModifier": {"set": responder},
        },
    ]
    if rewrite:
        filters.insert(0, {"type": "URLRewrite", "urlRewrite": rewrite})
    return compact(
        name=endpoint.backend, port=url.port, weight=backend.weight, filters=filters
    )
