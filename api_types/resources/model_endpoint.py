"""ModelEndpoint: one inference endpoint of a replica, or of a user's external provider."""

from typing import Literal

from api_types.resources.parts.base_types import Manifest, NonEmpty, ResourceModel
from api_types.resources.status import ResourceStatus, RoutingStatus


class ModelEndpointSpec(ResourceModel):
    """The address of an endpoint."""

    url: NonEmpty
    """URL; the port defaults to 443 for https, else 80."""
    rewrite_path: str | None = None
    """Prefix that replaces the service's prefix; absent leaves the path unchanged."""


class ModelEndpointStatus(ResourceStatus):
    """The observed state of an endpoint."""

    routing: RoutingStatus | None = None
    """Its backend object."""


class ModelEndpoint(Manifest):
    """One inference endpoint."""

    kind: Literal["ModelEndpoint"] = "ModelEndpoint"
    """Always ModelEndpoint."""
    spec: ModelEndpointSpec
    """The address."""
    status: ModelEndpointStatus | None = None
    """The state that the control plane reports."""
