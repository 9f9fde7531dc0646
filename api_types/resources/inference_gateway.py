"""InferenceGateway: the one gateway on the control cluster, always named `default`."""

from typing import Literal

from api_types.pins.charts import ENVOY_GATEWAY
from api_types.resources.parts.base_types import Manifest, ResourceModel
from api_types.resources.status import ResourceStatus

SINGLETON_NAME = "default"


class MetalLb(ResourceModel):
    """Addresses for a cluster in a network that assigns none."""

    address_pool: str
    """Range `first-last`, or a CIDR."""


class Traefik(ResourceModel):
    """Traefik as the gateway."""

    version: str
    """Chart version."""
    load_balancer: Literal["MetalLB"] | None = None
    """Absent if the cloud assigns addresses."""
    metallb: MetalLb | None = None
    """Required for MetalLB."""


class Envoy(ResourceModel):
    """Envoy Gateway as the gateway."""

    version: str = ENVOY_GATEWAY.version
    """Chart version."""
    load_balancer: Literal["MetalLB"] | None = None
    """Absent if the cloud assigns addresses."""
    metallb: MetalLb | None = None
    """Required for MetalLB."""


class InferenceGatewaySpec(ResourceModel):
    """The gateway implementation, and the source of its address."""

    backend: Literal["Traefik", "Envoy"]
    """Gateway implementation."""
    traefik: Traefik | None = None
    """Required for Traefik."""
    envoy: Envoy | None = None
    """Optional for Envoy."""


class InferenceGatewayStatus(ResourceStatus):
    """The observed state of the gateway."""

    address: str | None = None
    """External address."""


class InferenceGateway(Manifest):
    """The gateway for all services."""

    kind: Literal["InferenceGateway"] = "InferenceGateway"
    """Always InferenceGateway."""
    spec: InferenceGatewaySpec
    """The gateway implementation."""
    status: InferenceGatewayStatus | None = None
    """The state that the control plane reports."""
