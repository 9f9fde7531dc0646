"""The HTTPRoute of a ModelService on the control gateway."""

from collections.abc import Sequence

from activities.render.objects import components
from activities.render.objects.manifest import Item, Json, Owner, compact, labelled_item
from activities.render.services.retries import middleware_filter
from activities.render.services.route_plan import RoutedBackend
from api_types import labels, names
from api_types.messages.gateway_work import RouteTimeouts
from api_types.pins import apiversions
from api_types.text.endpoint_url import read_url

ROUTE = "service-route"


def service_path(namespace: str, service: str) -> str:
    """Give the path below which a service answers."""
    return f"/{namespace}/{service}/"


def service_route(
    owner: Owner, backends: Sequence[RoutedBackend], *, middleware: bool = False, timeouts: RouteTimeouts | None = None
) -> Item:
    """Give the route of a service: one rule, by path. Without backends the gateway answers that the service is unavailable.

    With `middleware` the rule names the Middleware of the service, unless there is nothing to send a request to. `timeouts` are written
    as they are: a gateway that supports one must be given it, and another one ignores it without a word.
    """
    path = {"type": "PathPrefix", "value": service_path(owner.namespace, owner.name)}
    filters = [middleware_filter(owner)] if middleware and backends else []
    rule = compact(
        matches=[{"path": path}],
        filters=filters,
        timeouts=timeouts.wire() if timeouts else None,
        backendRefs=[_backend(backend) for backend in backends],
    )
    manifest: Json = {
        "apiVersion": apiversions.GATEWAY,
        "kind": "HTTPRoute",
        "metadata": {"name": names.service_route_name(owner.namespace, owner.name), "namespace": owner.namespace},
        "spec": {"parentRefs": [{"name": labels.CONTROL_GATEWAY_NAME, "namespace": labels.SYSTEM_NAMESPACE}], "rules": [rule]},
    }
    return labelled_item(owner, ROUTE, components.ROUTING, manifest)


def _backend(backend: RoutedBackend) -> Json:
    endpoint = backend.endpoint
    url = read_url(endpoint.url)
    path = {"type": "ReplacePrefixMatch", "replacePrefixMatch": endpoint.rewrite_path} if endpoint.rewrite_path is not None else None
    # A provider does not know the gateway's name, which clients send.
    rewrite = compact(path=path, hostname=url.host if url.is_name else None)
    responder = [{"name": labels.RESPONDER_HEADER, "value": endpoint.name}]
    filters: list[Json] = [{"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": responder}}]
    if rewrite:
        filters.insert(0, {"type": "URLRewrite", "urlRewrite": rewrite})
    return compact(name=endpoint.backend, port=url.port, weight=backend.weight, filters=filters)
