"""The objects and Helm releases of the control cluster's gateway, by install step."""

import json
from collections.abc import Iterable
from importlib.resources import files

from activities.render.objects.edge import STEERING_HEADERS
from activities.render.objects.envoy_gateway import (
    CONTROLLER as ENVOY_CONTROLLER,
)
from activities.render.objects.envoy_gateway import ENVOY_PROXY, chart_values
from activities.render.objects.manifest import (
    Json,
    RenderedObject,
    RenderOwner,
    labelled_item,
)
from api_types import labels
from api_types.messages.routing import GatewayBackend
from api_types.messages.stack import HelmRelease
from api_types.pins import apiversions, charts
from api_types.resources.serving_stack import StackGateway

LISTENER = "web"
CLASSES: dict[GatewayBackend, str] = {"Traefik": "traefik", "Envoy": "envoy"}
_CONTROLLERS: dict[GatewayBackend, str] = {
    "Traefik": "traefik.io/gateway-controller",
    "Envoy": ENVOY_CONTROLLER,
}
# Traefik attaches a listener only to its own port, not to the port of its Service. Envoy
# Gateway creates a Service with the port of the listener.
_PORTS: dict[GatewayBackend, int] = {"Traefik": 8000, "Envoy": 80}
KEPT_BODY = "1Mi"
"""The largest body of a request that Envoy can send again."""
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


def envoy_definitions(of_chart: Iterable[Json]) -> list[Json]:
    """Return the definitions of the Gateway API, and Envoy Gateway's own ones.

    `of_chart` are all definitions of its chart. They contain the experimental channel of
    the Gateway API, after which the control cluster could not return to the standard
    channel, for example for Traefik. Envoy Gateway does not need it.
    """
    own = [
        each
        for each in of_chart
        if (each.get("spec") or {}).get("group") == apiversions.ENVOY_GROUP
    ]
    return [*definitions(), *own]


def gateway_class(
    owner: RenderOwner, backend: GatewayBackend = "Traefik"
) -> RenderedObject:
    """Return Modelplane's own GatewayClass.

    The Traefik chart renders a class even if it renders no gateway, so the chart's
    class is disabled.
    """
    spec: Json = {"controllerName": _CONTROLLERS[backend]}
    if backend == "Envoy":
        spec["parametersRef"] = {
            "group": apiversions.ENVOY_GROUP,
            "kind": ENVOY_PROXY[1],
            "name": labels.CONTROL_GATEWAY_NAME,
            "namespace": labels.SYSTEM_NAMESPACE,
        }
    manifest: Json = {
        "apiVersion": apiversions.GATEWAY,
        "kind": "GatewayClass",
        "metadata": {"name": CLASSES[backend]},
        "spec": spec,
    }
    return labelled_item(owner, "gateway-class", _COMPONENT, manifest)


def envoy_proxy(owner: RenderOwner) -> RenderedObject:
    """Return the settings of the proxies of Envoy Gateway.

    A change of the proxies' listener cuts the streams on the old one when its drain
    ends, so the drain is as long as on clusters.
    """
    manifest: Json = {
        "apiVersion": ENVOY_PROXY[0],
        "kind": ENVOY_PROXY[1],
        "metadata": {
            "name": labels.CONTROL_GATEWAY_NAME,
            "namespace": labels.SYSTEM_NAMESPACE,
        },
        "spec": {
            "provider": {
                "type": "Kubernetes",
                # The load balancers of some clouds reject `Local`, the default.
                "kubernetes": {"envoyService": {"externalTrafficPolicy": "Cluster"}},
            },
            "shutdown": {
                "drainTimeout": f"{StackGateway().longest_generation_seconds}s"
            },
        },
    }
    return labelled_item(owner, "gateway-proxy", _COMPONENT, manifest)


def client_policy(owner: RenderOwner) -> RenderedObject:
    """Return the policy for requests before they reach a route.

    It removes steering headers, and keeps the bodies of requests so that it can send
    them again. A larger body is passed on, and its request is not sent again.
    """
    target = {
        "group": apiversions.GATEWAY_GROUP,
        "kind": "Gateway",
        "name": labels.CONTROL_GATEWAY_NAME,
    }
    manifest: Json = {
        "apiVersion": apiversions.ENVOY,
        "kind": "ClientTrafficPolicy",
        "metadata": {
            "name": labels.CONTROL_GATEWAY_NAME,
            "namespace": labels.SYSTEM_NAMESPACE,
        },
        "spec": {
            "targetRefs": [target],
            "headers": {"earlyRequestHeaders": {"remove": list(STEERING_HEADERS)}},
            "connection": {"bufferLimit": KEPT_BODY},
        },
    }
    return labelled_item(owner, "client-policy", _COMPONENT, manifest)


def gateway(owner: RenderOwner, backend: GatewayBackend = "Traefik") -> RenderedObject:
    """Return the Gateway. Routes of all namespaces may attach to it."""
    listener = {
        "name": LISTENER,
        "protocol": "HTTP",
        "port": _PORTS[backend],
        "allowedRoutes": {"namespaces": {"from": "All"}},
    }
    manifest: Json = {
        "apiVersion": apiversions.GATEWAY,
        "kind": "Gateway",
        "metadata": {
            "name": labels.CONTROL_GATEWAY_NAME,
            "namespace": labels.SYSTEM_NAMESPACE,
        },
        "spec": {"gatewayClassName": CLASSES[backend], "listeners": [listener]},
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


def envoy_gateway(version: str) -> HelmRelease:
    """Return the release of Envoy Gateway with the given chart version.

    The routes of services name its Backends.
    """
    values = chart_values({"extensionApis": {"enableBackend": True}})
    return _release(charts.ENVOY_GATEWAY, version, values)


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
