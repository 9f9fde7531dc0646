"""ModelService: a stable URL over a set of ModelEndpoints of its namespace."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from api_types.resources.parts.base_types import Advice, LabelSelector, Manifest, ResourceModel, Whole
from api_types.resources.status import ResourceStatus


class EndpointSelector(ResourceModel):
    """Endpoints whose labels have every pair; no pair selects every endpoint of the namespace."""

    refused_fields: ClassVar[Mapping[str, str]] = LabelSelector.refused_fields

    match_labels: dict[str, str]
    """Pairs that must all be equal."""


class ServiceEntry(ResourceModel):
    """Some endpoints and their share of the traffic."""

    weight: Annotated[
        Whole,
        Field(ge=1, le=1_000_000),
        Advice(out_of_range="remove the entry to send it nothing"),
    ] = 1
    """Share of the entry, relative to the other entries."""
    selector: EndpointSelector
    """Which endpoints."""


class ModelServiceSpec(ResourceModel):
    """Where requests go."""

    endpoints: Annotated[tuple[ServiceEntry, ...], Field(min_length=1)]
    """Traffic is split by weight between entries, then evenly inside an entry."""


class ModelServiceStatus(ResourceStatus):
    """Where a service can be reached."""

    address: str | None = None
    """`http://<gateway>/<namespace>/<service>`, without a trailing slash."""


class ModelService(Manifest):
    """A stable URL."""

    kind: Literal["ModelService"] = "ModelService"
    """Always ModelService."""
    spec: ModelServiceSpec
    """Where requests go."""
    status: ModelServiceStatus | None = None
    """What the control plane reports."""
