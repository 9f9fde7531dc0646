"""InferenceGateway: the one gateway on the control cluster, always named `default`."""

from typing import Literal

from api_types.resources.parts.base_types import Manifest, ResourceModel
from api_types.resources.status import ResourceStatus

SINGLETON_NAME = "default"


class MetalLb(ResourceModel):
    """Addresses for a cluster on a network that assigns none."""

    address_pool: str
    """Range `first-last`, or a CIDR."""


class Traefik(ResourceModel):
    """Traefik as the gateway."""

    version: str
    """Chart version."""
    load_balancer: Literal["MetalLB"] | None = None
    """Absent where the cloud assigns addresses."""
    metallb: MetalLb | None = None
    """Needed for MetalLB."""


class InferenceGatewaySpec(ResourceModel):
    """Which gateway, and how it gets its address."""

    backend: Literal["Traefik"]
    """Gateway implementation."""
    traefik: Traefik | None = None
    """Needed for Traefik."""


class InferenceGatewayStatus(ResourceStatus):
    """Where the gateway is."""

    address: str | None = None
    """External address."""


class InferenceGateway(Manifest):
    """The gateway for all services."""

    kind: Literal["InferenceGateway"] = "InferenceGateway"
    """Always InferenceGateway."""
    spec: InferenceGatewaySpec
    """Which gateway."""
    status: InferenceGatewayStatus | None = None
    """What the control plane reports."""
