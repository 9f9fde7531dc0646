"""The backend of an endpoint on the control cluster.

It is a Service without a selector and its EndpointSlice. A Service of type ExternalName
would be simpler, but gateways reject it as a backend.
"""

import ipaddress
from dataclasses import dataclass
from typing import Literal

from activities.render.objects import components
from activities.render.objects.manifest import (
    Json,
    RenderedObject,
    RenderOwner,
    labelled_item,
)
from api_types import labels, names
from api_types.pins import apiversions
from api_types.text.endpoint_url import EndpointUrl

AddressType = Literal["IPv4", "IPv6", "FQDN"]

SERVICE = "endpoint-service"
SLICE = "endpoint-slice"


@dataclass(frozen=True)
class Backend:
    """The destination of requests to an endpoint."""

    url: EndpointUrl

    @property
    def address_type(self) -> AddressType:
        """The address type of the slice.

        It is immutable in a slice, so slices are named after it.
        """
        try:
            address = ipaddress.ip_address(self.url.host)
        except ValueError:
            return "FQDN"
        return "IPv4" if isinstance(address, ipaddress.IPv4Address) else "IPv6"


def endpoint_objects(
    owner: RenderOwner, endpoint: str, backend: Backend
) -> list[RenderedObject]:
    """Return the slice and the Service of an endpoint.

    The slice comes first: a Service without a slice is a backend that responds with
    errors.
    """
    name = names.endpoint_service_name(owner.namespace, endpoint)
    return [_slice(owner, name, backend), _service(owner, name, backend.url)]


def slice_names(service: str) -> list[str]:
    """Return the names of all slices that a Service of ours may have."""
    return [
        names.endpoint_slice_name(service, kind) for kind in ("IPv4", "IPv6", "FQDN")
    ]


def _service(owner: RenderOwner, name: str, url: EndpointUrl) -> RenderedObject:
    # Without the protocol Traefik guesses: TLS on port 443 only.
    port = {"port": url.port, "protocol": "TCP", "appProtocol": url.scheme}
    manifest: Json = {
        "apiVersion": apiversions.CORE,
        "kind": "Service",
        "metadata": {"name": name, "namespace": owner.namespace},
        "spec": {"ports": [port]},
    }
    return labelled_item(owner, SERVICE, components.ROUTING, manifest)


def _slice(owner: RenderOwner, service: str, backend: Backend) -> RenderedObject:
    manifest: Json = {
        "apiVersion": apiversions.DISCOVERY,
        "kind": "EndpointSlice",
        "metadata": {
            "name": names.endpoint_slice_name(service, backend.address_type),
            "namespace": owner.namespace,
        },
        "addressType": backend.address_type,
        # The Service's only port has no name.
        "ports": [{"name": "", "port": backend.url.port, "protocol": "TCP"}],
        # Traefik treats an address without a readiness condition as not ready.
        "endpoints": [{"addresses": [backend.url.host], "conditions": {"ready": True}}],
    }
    return labelled_item(
        owner,
        SLICE,
        components.ROUTING,
        manifest,
        extra_labels={labels.SERVICE_NAME: service},
    )
