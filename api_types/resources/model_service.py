"""ModelService: a stable URL over a set of ModelEndpoints of its namespace."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from api_types.limits import RETRIES_MAX, RETRY_BACKOFF_MILLISECONDS_MAX, RETRY_CODES
from api_types.resources.parts.base_types import Advice, LabelSelector, Manifest, Name63, ResourceModel, Whole
from api_types.resources.status import ResourceStatus
from api_types.text import gateway_duration

PRIORITY_MAX = 100
_A_DURATION = 'a duration of the Gateway API as a string, such as "300s" or "1m30s"'


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


class ServiceRetries(ResourceModel):
    """Requests that are sent again, to the next endpoint by weight: always those of which no endpoint was sent anything."""

    refused_fields: ClassVar[Mapping[str, str]] = {
        "timeout": "unknown field; how long a request may take is spec.timeouts",
    }
    renamed_fields: ClassVar[Mapping[str, str]] = {"on": "codes", "statusCodes": "codes", "backoff": "backoffMilliseconds"}

    attempts: Annotated[Whole, Field(ge=1, le=RETRIES_MAX), Advice(out_of_range="leave out spec.retries to send no request again")] = 1
    """How often at most a request is sent again, after the first time."""
    codes: Annotated[tuple[Whole, ...], Field(max_length=len(RETRY_CODES))] = ()
    """Responses after which it is sent again too, of 429, 502, 503 and 504. After 502 and 504 an engine may have worked on it."""
    backoff_milliseconds: Annotated[Whole, Field(ge=0, le=RETRY_BACKOFF_MILLISECONDS_MAX)] = 100
    """About how long the gateway waits before it sends a request again; later waits are up to twice as long."""


Duration = Annotated[
    str,
    Field(pattern=gateway_duration.PATTERN),
    Advice(
        pattern=f"must be {_A_DURATION}",
        not_a_string=f"must be {_A_DURATION}; got {{got}}",
    ),
]


class ServiceTimeouts(ResourceModel):
    """After which times the gateway ends a request; a stream of tokens that takes longer is cut."""

    renamed_fields: ClassVar[Mapping[str, str]] = {"backend": "backendRequest", "requestTimeout": "request"}

    request: Duration | None = None
    """For a request of a client, until its response has ended: `300s`. `0s`: the gateway ends none, whatever limit of its own it has."""
    backend_request: Duration | None = None
    """For each time that the request is sent to an endpoint; at most `request`."""


class ModelServiceSpec(ResourceModel):
    """Where requests go."""

    renamed_fields: ClassVar[Mapping[str, str]] = {"retry": "retries", "timeout": "timeouts"}

    endpoints: Annotated[tuple[ServiceEntry, ...], Field(min_length=1)]
    """Traffic is split by weight between entries, then evenly inside an entry."""
    retries: ServiceRetries | None = None
    """Which requests are sent again; absent: none is."""
    timeouts: ServiceTimeouts | None = None
    """After which times the gateway ends a request, where its GatewayClass supports that; absent: as the gateway does without."""


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
