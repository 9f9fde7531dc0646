"""The Middleware that sends requests of a ModelService again: Traefik's `retry`, which the route of the service names.

Traefik always sends a request again of which nothing was sent to an endpoint, such as when the connection is refused. For a code it has to
keep the body, and to be told that a POST, which each request to a model is, may be sent twice.
"""

from activities.render.objects import components
from activities.render.objects.manifest import Item, Json, Owner, compact, labelled_item
from api_types import names
from api_types.messages.gateway_work import RouteRetries
from api_types.pins import apiversions

MIDDLEWARE = "service-middleware"
# Traefik reserves so much for each request that it may send again after a code, however small the request is, until its response has ended.
BODY_BYTES_MAX = 1 << 20


def service_middleware(owner: Owner, retries: RouteRetries) -> Item:
    """Give the Middleware of a service, which has the name of its route."""
    # Its attempts count the first time too.
    retry: Json = compact(attempts=retries.attempts + 1, status=[str(code) for code in retries.codes])
    if retries.backoff_milliseconds:
        retry["initialInterval"] = f"{retries.backoff_milliseconds}ms"
    if retries.codes:
        retry |= {"retryNonIdempotentMethod": True, "maxRequestBodyBytes": BODY_BYTES_MAX}
    manifest: Json = {
        "apiVersion": apiversions.TRAEFIK,
        "kind": "Middleware",
        "metadata": {"name": names.service_route_name(owner.namespace, owner.name), "namespace": owner.namespace},
        "spec": {"retry": retry},
    }
    return labelled_item(owner, MIDDLEWARE, components.ROUTING, manifest)


def middleware_filter(owner: Owner) -> Json:
    """Give the filter by which the route of a service names its Middleware."""
    reference = {"group": apiversions.TRAEFIK_GROUP, "kind": "Middleware", "name": names.service_route_name(owner.namespace, owner.name)}
    return {"type": "ExtensionRef", "extensionRef": reference}
