"""The objects and Helm releases of the control cluster's gateway, by install step."""

import json
from importlib.resources import files

from activities.render.objects.manifest import (
    Json,
    RenderedObject,
    RenderOwner,
    labelled_item,
)
from api_types import labels
from api_types.messages.stack import HelmRelease
from api_types.pins import apiversions, charts

CLASS = "traefik"
CONTROLLER = "traefik.io/gateway-controller"
LISTENER = "web"
# The gateway's own port, not the port of its Service: Traefik attaches no listener with
# any other port.
LISTENER_PORT = 8000
METALLB_POOL = "modelplane"
METALLB_WEBHOOK = "metallb-webhook-service"
"""The Service through which the API server validates addresses.

Addresses cannot be written before the Service has an endpoint.
"""
SERVICE = "traefik"
_COMPONENT = "control-gateway"
_CRDS = files(__name__.rpartition(".")[0]).joinpath("crds")


def definitions() -> list[Json]:
    """Return the definitions of the Gateway API, standard channel."""
    found = sorted(
        (each for each in _CRDS.iterdir() if each.name.endswith(".json")),
        key=lambda each: each.name,
    )
    return [json.loads(each.read_text(encoding="utf-8")) for each in found]


def gateway_class(owner: RenderOwner) -> RenderedObject:
    """Return Modelplane's own GatewayClass.

    The Traefik chart renders a class even if it renders no gateway, so the chart's
    class is disabled.
    """
    manifest: Json = {
        "apiVersion": apiversions.GATEWAY,
        "kind": "GatewayClass",
        "metadata": {"name": CLASS},
        "spec": {"controllerName": CONTROLLER},
    }
    return labelled_item(owner, "gateway-class", _COMPONENT, manifest)


def gateway(owner: RenderOwner) -> RenderedObject:
    """Return the Gateway. Routes of all namespaces may attach to it."""
    listener = {
        "name": LISTENER,
        "protocol": "HTTP",
        "port": LISTENER_PORT,
        "allowedRoutes": {"namespaces": {"from": "All"}},
    }
    manifest: Json = {
        "apiVersion": apiversions.GATEWAY,
        "kind": "Gateway",
        "metadata": {
            "name": labels.CONTROL_GATEWAY_NAME,
            "namespace": labels.SYSTEM_NAMESPACE,
        },
        "spec": {"gatewayClassName": CLASS, "listeners": [listener]},
    }
    return labelled_item(owner, "gateway", _COMPONENT, manifest)


def address_pool(owner: RenderOwner, addresses: str) -> list[RenderedObject]:
    """Return the MetalLB address pool and its announcement on the local network."""
    metadata = {"name": METALLB_POOL, "namespace": charts.METALLB.namespace}
    pool: Json = {
        "apiVersion": apiversions.METALLB,
        "kind": "IPAddressPool",
        "metadata": metadata,
        "spec": {"addresses": [addresses]},
    }
    advertised: Json = {
        "apiVersion": apiversions.METALLB,
        "kind": "L2Advertisement",
        "metadata": metadata,
        "spec": {"ipAddressPools": [METALLB_POOL]},
    }
    return [
        labelled_item(owner, "address-pool", _COMPONENT, pool),
        labelled_item(owner, "address-advertisement", _COMPONENT, advertised),
    ]


def traefik(version: str) -> HelmRelease:
    """Return the Traefik release with the given chart version."""
    pin = charts.TRAEFIK
    provider = {
        "enabled": True,
        # The Gateway gets the address of this Service. If the Service is missing,
        # Traefik loads no routes at all.
        "statusAddress": {"service": {"namespace": pin.namespace, "name": SERVICE}},
    }
    values = {
        # Middlewares belong to Traefik's CRD provider, which the chart also enables by
        # default.
        "providers": {
            "kubernetesGateway": provider,
            "kubernetesCRD": {"enabled": True},
            "kubernetesIngress": {"enabled": False},
        },
        "service": {"nameOverride": SERVICE},
        "gateway": {"enabled": False},
        "gatewayClass": {"enabled": False},
    }
    return _release(pin, version, values)


def metallb() -> HelmRelease:
    return _release(charts.METALLB, charts.METALLB.version, {})


def _release(pin: charts.ChartPin, version: str, values: Json) -> HelmRelease:
    return HelmRelease(
        name=pin.release,
        namespace=pin.namespace,
        chart=pin.chart,
        repository=pin.repository,
        version=version,
        values=values,
    )
