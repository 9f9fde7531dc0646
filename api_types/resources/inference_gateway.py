"""InferenceGateway: the control plane's single front door, always named `default`."""

from typing import Literal

from api_types.resources.parts.base_types import Manifest, Shape
from api_types.resources.status import InferenceGatewayStatus

SINGLETON_NAME = "default"


class MetalLb(Shape):
    """Addresses for a cluster whose surroundings assign none."""

    address_pool: str
    """Range `first-last`, or a CIDR."""


class Traefik(Shape):
    """Traefik as the gateway."""

    version: str
    """Chart version."""
    load_balancer: Literal["MetalLB"] | None = None
    """Absent where the cloud assigns addresses."""
    metallb: MetalLb | None = None
    """Needed for MetalLB."""


class InferenceGatewaySpec(Shape):
    """Which gateway, and how it gets its address."""

    backend: Literal["Traefik"]
    """Gateway implementation."""
    traefik: Traefik | None = None
    """Needed for Traefik."""


class InferenceGateway(Manifest):
    """The front door."""

    kind: Literal["InferenceGateway"] = "InferenceGateway"
    """Always InferenceGateway."""
    spec: InferenceGatewaySpec
    """Which gateway."""
    status: InferenceGatewayStatus | None = None
    """What the control plane reports."""
