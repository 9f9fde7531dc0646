"""ModelEndpoint: one reachable inference endpoint, made for a replica or written by hand for an outside provider."""

from typing import Literal

from api_types.resources.parts.base_types import Manifest, NonEmpty, Shape
from api_types.resources.status import ModelEndpointStatus


class ModelEndpointSpec(Shape):
    """Where it is."""

    url: NonEmpty
    """Address; the port defaults to 443 for https, else 80."""
    rewrite_path: str | None = None
    """Prefix that replaces the service's prefix; absent leaves the path alone."""


class ModelEndpoint(Manifest):
    """One reachable endpoint."""

    kind: Literal["ModelEndpoint"] = "ModelEndpoint"
    """Always ModelEndpoint."""
    spec: ModelEndpointSpec
    """Where it is."""
    status: ModelEndpointStatus | None = None
    """What the control plane reports."""
