"""ModelEndpoint: one reachable inference endpoint, created for a replica, or by a user for an external provider."""

from typing import Literal

from api_types.resources.parts.base_types import Manifest, NonEmpty, ResourceModel
from api_types.resources.status import ResourceStatus, RoutingStatus


class ModelEndpointSpec(ResourceModel):
    """Where it is."""

    url: NonEmpty
    """Address; the port defaults to 443 for https, else 80."""
    rewrite_path: str | None = None
    """Prefix that replaces the service's prefix; absent leaves the path unchanged."""


class ModelEndpointStatus(ResourceStatus):
    """Whether an endpoint can be routed to."""

    routing: RoutingStatus | None = None
    """Its backend object."""


class ModelEndpoint(Manifest):
    """One reachable endpoint."""

    kind: Literal["ModelEndpoint"] = "ModelEndpoint"
    """Always ModelEndpoint."""
    spec: ModelEndpointSpec
    """Where it is."""
    status: ModelEndpointStatus | None = None
    """What the control plane reports."""
