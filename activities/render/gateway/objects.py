"""The Gateway that all services share, its class, and the addresses that MetalLB may give it."""

from activities.render.objects import components
from activities.render.objects.manifest import Item, Json, Owner, labelled_item
from api_types import labels
from api_types.pins import apiversions

CLASS = "traefik"
CONTROLLER = "traefik.io/gateway-controller"
LISTENER = "web"
# The gateway's own port, not that of its Service: a listener with another port is attached to nothing.
LISTENER_PORT = 8000
METALLB_NAME = "modelplane"
METALLB_NAMESPACE = "metallb-system"


def gateway_class(owner: Owner) -> Item:
    """Give the class: ours, because the chart of Traefik renders one even where it renders no gateway."""
    manifest: Json = {
        "apiVersion": apiversions.GATEWAY,
        "kind": "GatewayClass",
        "metadata": {"name": CLASS},
        "spec": {"controllerName": CONTROLLER},
    }
    return labelled_item(owner, "gateway-class", components.GATEWAY, manifest)


def gateway(owner: Owner) -> Item:
    """Give the Gateway; routes of all namespaces may attach to it."""
    listener = {"name": LISTENER, "protocol": "HTTP", "port": LISTENER_PORT, "allowedRoutes": {"namespaces": {"from": "All"}}}
    manifest: Json = {
        "apiVersion": apiversions.GATEWAY,
        "kind": "Gateway",
        "metadata": {"name": labels.CONTROL_GATEWAY_NAME, "namespace": labels.SYSTEM_NAMESPACE},
        "spec": {"gatewayClassName": CLASS, "listeners": [listener]},
    }
    return labelled_item(owner, "gateway", components.GATEWAY, manifest)


def address_pool(owner: Owner, addresses: str) -> list[Item]:
    """Give the addresses that MetalLB hands out, and that it answers for them on the local network."""
    metadata = {"name": METALLB_NAME, "namespace": METALLB_NAMESPACE}
    pool: Json = {
        "apiVersion": apiversions.METALLB,
        "kind": "IPAddressPool",
        "metadata": metadata,
        "spec": {"addresses": [addresses]},
    }
    advertisement: Json = {
        "apiVersion": apiversions.METALLB,
        "kind": "L2Advertisement",
        "metadata": metadata,
        "spec": {"ipAddressPools": [METALLB_NAME]},
    }
    return [
        labelled_item(owner, "address-pool", components.GATEWAY, pool),
        labelled_item(owner, "address-advertisement", components.GATEWAY, advertisement),
    ]


def traefik_values() -> Json:
    """Give the values of Traefik's chart."""
    return {
        "providers": {
            "kubernetesGateway": {
                "enabled": True,
                # The Gateway gets the address of this Service. If it cannot be found, Traefik loads no routes at all.
                "statusAddress": {"service": {"namespace": "traefik-system", "name": "traefik"}},
            },
            "kubernetesIngress": {"enabled": False},
        },
        "service": {"nameOverride": "traefik"},
        "gateway": {"enabled": False},
        "gatewayClass": {"enabled": False},
    }
