"""The Middleware that retries requests of a ModelService, Traefik's `retry`.

The route of the service references it. Traefik always retries a request of which it
sent nothing to an endpoint, such as after a refused connection. To retry after a status
code, it must keep the request body, and it must be allowed to send a POST twice. Each
request to a model is a POST.
"""

from activities.render.objects import components
from activities.render.objects.manifest import (
    Json,
    RenderedObject,
    RenderOwner,
    compact,
    labelled_item,
)
from api_types import names
from api_types.messages.gateway_work import RouteRetries
from api_types.pins import apiversions

MIDDLEWARE = "service-middleware"
# Traefik reserves this many bytes for each request that it may retry after a status
# code, however small the request is, until its response has ended.
BODY_BYTES_MAX = 1 << 20


def service_middleware(owner: RenderOwner, retries: RouteRetries) -> RenderedObject:
    """Return the Middleware of a service. It has the name of the service's route."""
    # Traefik's attempts include the first one.
    retry: Json = compact(
        attempts=retries.attempts + 1, status=[str(code) for code in retries.codes]
    )
    if retries.backoff_milliseconds:
        retry["initialInterval"] = f"{retries.backoff_milliseconds}ms"
    if retries.codes:
        retry |= {
            "retryNonIdempotentMethod": True,
            "maxRequestBodyBytes": BODY_BYTES_MAX,
        }
    manifest: Json = {
        "apiVersion": apiversions.TRAEFIK,
        "kind": "Middleware",
        "metadata": {
            "name": names.service_route_name(owner.namespace, owner.name),
            "namespace": owner.namespace,
        },
        "spec": {"retry": retry},
    }
    return labelled_item(owner, MIDDLEWARE, components.ROUTING, manifest)


def middleware_filter(owner: RenderOwner) -> Json:
    """Return the filter by which a service's route references its Middleware."""
    reference = {
        "group": apiversions.TRAEFIK_GROUP,
        "kind": "Middleware",
        "name": names.service_route_name(owner.namespace, owner.name),
    }
    return {"type": "ExtensionRef", "extensionRef": reference}
