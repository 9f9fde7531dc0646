"""The backend of an endpoint on the control cluster: a Service without a selector, and the EndpointSlice behind it.

A Service of type ExternalName would be simpler, but gateways refuse it as a backend.
"""

import ipaddress
from dataclasses import dataclass
from typing import Literal

from activities.render.objects import components
from activities.render.objects.manifest import Item, Json, Owner, labelled_item
from api_types import labels, names
from api_types.pins import apiversions
from api_types.text.endpoint_url import EndpointUrl

AddressType = Literal["IPv4", "IPv6", "FQDN"]

SERVICE = "endpoint-service"
SLICE = "endpoint-slice"


@dataclass(frozen=True)
class Backend:
    """Where requests to an endpoint go, as its URL says."""

    url: EndpointUrl

    @property
    def address_type(self) -> AddressType:
        """The kind of its address. It can never be changed in a slice, so slices are named after it."""
        try:
            return "IPv4" if ipaddress.ip_address(self.url.host).version == 4 else "IPv6"  # noqa: PLR2004 - a version of IP
        except ValueError:
            return "FQDN"


def endpoint_objects(owner: Owner, endpoint: str, backend: Backend) -> list[Item]:
    """Give the slice first: a Service without one is a backend that answers with errors."""
    name = names.endpoint_service_name(owner.namespace, endpoint)
    return [_slice(owner, name, backend), _service(owner, name, backend.url)]


def slice_names(service: str) -> list[str]:
    """Name every slice that a Service of ours may have."""
    return [names.endpoint_slice_name(service, kind) for kind in ("IPv4", "IPv6", "FQDN")]


def _service(owner: Owner, name: str, url: EndpointUrl) -> Item:
    # Without the protocol Traefik guesses: TLS on port 443, and nowhere else.
    port = {"port": url.port, "protocol": "TCP", "appProtocol": url.scheme}
    manifest: Json = {
        "apiVersion": apiversions.CORE,
        "kind": "Service",
        "metadata": {"name": name, "namespace": owner.namespace},
        "spec": {"ports": [port]},
    }
    return labelled_item(owner, SERVICE, components.ROUTING, manifest)


def _slice(owner: Owner, service: str, backend: Backend) -> Item:
    manifest: Json = {
        "apiVersion": apiversions.DISCOVERY,
        "kind": "EndpointSlice",
        "metadata": {"name": names.endpoint_slice_name(service, backend.address_type), "namespace": owner.namespace},
        "addressType": backend.address_type,
        # The name is that of the Service's only port, which has none.
        "ports": [{"name": "", "port": backend.url.port, "protocol": "TCP"}],
        # Traefik takes an address whose readiness is not said for one that is not ready.
        "endpoints": [{"addresses": [backend.url.host], "conditions": {"ready": True}}],
    }
    return labelled_item(owner, SLICE, components.ROUTING, manifest, extra_labels={labels.SERVICE_NAME: service})
