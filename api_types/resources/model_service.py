"""ModelService: a stable URL over a set of ModelEndpoints of its namespace."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from api_types.resources.parts.base_types import Advice, LabelSelector, Manifest, Name63, ResourceModel, Whole
from api_types.resources.status import ResourceStatus

PRIORITY_MAX = 100


class EndpointSelector(ResourceModel):
    """Endpoints whose labels have every pair; no pair selects every endpoint of the namespace."""

    refused_fields: ClassVar[Mapping[str, str]] = LabelSelector.refused_fields

    match_labels: dict[str, str]
    """Pairs that must all be equal."""


class ServiceEntry(ResourceModel):
    """Some endpoints and their share of the traffic."""

    name: Name63 | None = None
    """Unique name of the entry, by which commands and status refer to it."""
    priority: Annotated[Whole, Field(ge=0, le=PRIORITY_MAX)] = 0
    """Failover: requests go to the entries of the smallest priority that have a Ready endpoint, and to no others."""
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


class EntryStatus(ResourceModel):
    """What an entry of a service selects, and what of that gets requests."""

    name: str = ""
    """Name of the entry, or the labels that it selects by."""
    weight: int = 1
    """Share of the entry, relative to the other entries."""
    priority: int = 0
    """Its place in the order of failover."""
    matched: int = 0
    """Endpoints that it selects."""
    ready: int = 0
    """Those of them that can be routed."""
    routed: int = 0
    """Those of them that are routed."""
    standby: bool = False
    """Whether entries of a smaller priority serve in its place."""


class RoutedEndpointStatus(ResourceModel):
    """An endpoint that the route of a service has."""

    name: str = ""
    """Name of the ModelReplica or ModelEndpoint."""
    weight: int = 1
    """Share of the endpoint, relative to the other endpoints."""
    url: str = ""
    """Where it is."""
    cluster: str | None = None
    """The InferenceCluster of a ModelReplica."""
    entry: str | None = None
    """The entry that selects it, as `entries` names it."""


class ServiceSummary(ResourceModel):
    """What the columns of a list show."""

    ready: str = ""
    """Endpoints that can be routed, of those that are selected: `2/3`."""
    entries: str = ""
    """Entries with their weights: `stable=90 canary=10`."""


class ModelServiceStatus(ResourceStatus):
    """Where a service can be reached."""

    address: str | None = None
    """`http://<gateway>/<namespace>/<service>`, without a trailing slash."""
    summary: ServiceSummary | None = None
    """What the columns of a list show."""
    route: str | None = None
    """Name of its HTTPRoute on the control cluster."""
    entries: tuple[EntryStatus, ...] = ()
    """Its entries, in the order of the spec."""
    endpoints: tuple[RoutedEndpointStatus, ...] = ()
    """The endpoints that requests are sent to."""


class ModelService(Manifest):
    """A stable URL."""

    kind: Literal["ModelService"] = "ModelService"
    """Always ModelService."""
    spec: ModelServiceSpec
    """Where requests go."""
    status: ModelServiceStatus | None = None
    """What the control plane reports."""
