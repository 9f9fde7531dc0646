"""ModelService: a stable URL over a set of ModelEndpoints of its namespace."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from api_types.limits import RETRIES_MAX, RETRY_BACKOFF_MILLISECONDS_MAX, RETRY_CODES
from api_types.resources.parts.base_types import (
    Advice,
    LabelSelector,
    Manifest,
    Name63,
    ResourceModel,
    Whole,
)
from api_types.resources.status import ResourceStatus
from api_types.text import gateway_duration

PRIORITY_MAX = 100
_A_DURATION = 'a duration of the Gateway API as a string, such as "300s" or "1m30s"'


class EndpointSelector(ResourceModel):
    """Selects endpoints with all these labels; no labels select the whole namespace."""

    refused_fields: ClassVar[Mapping[str, str]] = LabelSelector.refused_fields

    match_labels: dict[str, str]
    """Labels that must all be equal."""


class ServiceEntry(ResourceModel):
    """Endpoints and their share of the traffic."""

    name: Name63 | None = None
    """Unique name of the entry, for commands and status."""
    priority: Annotated[Whole, Field(ge=0, le=PRIORITY_MAX)] = 0
    """Failover priority.

    Requests go only to the entries of the smallest priority with a Ready endpoint.
    """
    weight: Annotated[
        Whole,
        Field(ge=1, le=1_000_000),
        Advice(out_of_range="remove the entry to send it nothing"),
    ] = 1
    """Share of the entry, relative to the other entries."""
    selector: EndpointSelector
    """The endpoints."""


class ServiceRetries(ResourceModel):
    """The retry policy.

    Requests that reached no endpoint are always retried.

    A retry goes to the next endpoint by weight.
    """

    refused_fields: ClassVar[Mapping[str, str]] = {
        "timeout": "unknown field; set the time limit of a request in spec.timeouts",
    }
    renamed_fields: ClassVar[Mapping[str, str]] = {
        "on": "codes",
        "statusCodes": "codes",
        "backoff": "backoffMilliseconds",
    }

    attempts: Annotated[
        Whole,
        Field(ge=1, le=RETRIES_MAX),
        Advice(out_of_range="leave out spec.retries to send no request again"),
    ] = 1
    """The maximum number of retries of a request."""
    codes: Annotated[tuple[Whole, ...], Field(max_length=len(RETRY_CODES))] = ()
    """Responses that are also retried: 429, 502, 503 and 504 are permitted.

    After 502 and 504 an engine may have processed the request.
    """
    backoff_milliseconds: Annotated[
        Whole, Field(ge=0, le=RETRY_BACKOFF_MILLISECONDS_MAX)
    ] = 100
    """Approximate time before a retry; later waits are up to twice as long."""


Duration = Annotated[
    str,
    Field(pattern=gateway_duration.PATTERN),
    Advice(
        pattern=f"must be {_A_DURATION}",
        not_a_string=f"must be {_A_DURATION}; got {{got}}",
    ),
]


class ServiceTimeouts(ResourceModel):
    """Timeouts after which the gateway ends a request, including a stream of tokens."""

    renamed_fields: ClassVar[Mapping[str, str]] = {
        "backend": "backendRequest",
        "requestTimeout": "request",
    }

    request: Duration | None = None
    """Limit for a client's request, until the end of its response: `300s`.

    `0s`: no limit, even if the gateway has a default limit.
    """
    backend_request: Duration | None = None
    """Limit for each attempt to send the request to an endpoint; at most `request`."""


class ModelServiceSpec(ResourceModel):
    """The routing of a service."""

    renamed_fields: ClassVar[Mapping[str, str]] = {
        "retry": "retries",
        "timeout": "timeouts",
    }

    endpoints: Annotated[tuple[ServiceEntry, ...], Field(min_length=1)]
    """Traffic is split by weight between entries, then evenly inside an entry."""
    retries: ServiceRetries | None = None
    """The retry policy; absent: no retries."""
    timeouts: ServiceTimeouts | None = None
    """Timeouts of requests, if the GatewayClass supports them.

    Absent: the gateway's default.
    """


class EntryStatus(ResourceModel):
    """The endpoints of an entry: selected, routable and routed."""

    name: str = ""
    """Name of the entry, or its labels."""
    weight: int = 1
    """Share of the entry, relative to the other entries."""
    priority: int = 0
    """Its failover priority."""
    matched: int = 0
    """Selected endpoints."""
    ready: int = 0
    """Routable endpoints."""
    routed: int = 0
    """Endpoints in the route."""
    standby: bool = False
    """Whether entries of a smaller priority serve in its place."""


class RoutedEndpointStatus(ResourceModel):
    """An endpoint in the route of a service."""

    name: str = ""
    """Name of the ModelReplica or ModelEndpoint."""
    weight: int = 1
    """Share of the endpoint, relative to the other endpoints."""
    url: str = ""
    """URL of the endpoint."""
    cluster: str | None = None
    """The InferenceCluster of a ModelReplica."""
    entry: str | None = None
    """The entry that selects it, by its name in `entries`."""


class ServiceSummary(ResourceModel):
    """Columns of a list."""

    ready: str = ""
    """Routable endpoints of the selected ones: `2/3`."""
    entries: str = ""
    """Entries with their weights: `stable=90 canary=10`."""


class ModelServiceStatus(ResourceStatus):
    """The observed state of a service."""

    address: str | None = None
    """`http://<gateway>/<namespace>/<service>`, without a trailing slash."""
    summary: ServiceSummary | None = None
    """Columns of a list."""
    route: str | None = None
    """Name of its HTTPRoute on the control cluster."""
    entries: tuple[EntryStatus, ...] = ()
    """Its entries, in the order of the spec."""
    endpoints: tuple[RoutedEndpointStatus, ...] = ()
    """The endpoints that receive requests."""


class ModelService(Manifest):
    """A stable URL."""

    kind: Literal["ModelService"] = "ModelService"
    """Always ModelService."""
    spec: ModelServiceSpec
    """The routing."""
    status: ModelServiceStatus | None = None
    """The state that the control plane reports."""
