"""Messages about endpoints, services and the gateway.

The owner of an endpoint is a ModelReplica, or a ModelEndpoint of a user. It creates the
backend on the control cluster and reports it to the EndpointDirectory of the namespace.
Each ModelService reports its selectors to the directory, receives the matching
endpoints, and reports the endpoints in its route.
"""

from typing import Annotated, Literal

from pydantic import Field

from api_types.base import Id, Message, Name, SentAt, Text
from api_types.limits import (
    DENIED_NETWORKS_MAX,
    ROUTE_BACKENDS_MAX,
    SERVICE_ENTRIES_MAX,
)

Labels = dict[str, str]
EndpointOwner = Literal["ModelReplica", "ModelEndpoint"]
GatewayBackend = Literal["Traefik", "Envoy"]
"""The implementation of the gateway on the control cluster."""

REQUEST_TIMEOUT, BACKEND_TIMEOUT = "HTTPRouteRequestTimeout", "HTTPRouteBackendTimeout"
"""The Gateway API features for `timeouts.request` and `timeouts.backendRequest`.

A GatewayClass lists them if its routes support these timeouts.
"""


class Endpoint(Message):
    """One endpoint, for services.

    `uid` is the uid of its owner. `backend` is its Service on the control cluster;
    while it is empty, no requests are routed to the endpoint. `cluster` is set for a
    ModelReplica.
    """

    name: Name
    uid: Id
    cluster: Name = ""
    labels: Labels = Field(default_factory=dict)
    url: Id
    rewrite_path: Id | None = None
    backend: Name = ""


class EndpointReport(Message):
    """An owner's report of its endpoint.

    A report without an endpoint is a withdrawal: all services must remove the endpoint
    from their routes. `sequence` orders the reports of the owner with this uid. `gone`
    means that the owner has nothing to withdraw, and needs no response.
    """

    owner: EndpointOwner
    name: Name
    uid: Id
    sequence: SentAt
    endpoint: Endpoint | None = None
    gone: bool = False


class EndpointWithdrawn(Message):
    """No route has the endpoint, as of the owner's report with this sequence.

    The sequence is the receiver's own. It may be ahead of the clock if the clock was
    set back in the meantime.
    """

    uid: Id
    sequence: int


class EntrySelection(Message):
    """The selector of one entry of a service, and its priority (smaller first)."""

    match_labels: Labels = Field(default_factory=dict)
    priority: int = 0


class ServiceReport(Message):
    """The selectors of a service.

    A deleted service has no entries and no route.

    `routed` are the endpoints that its route currently has, and `version` is the
    version of the list that they are from; a directory that lost its state recovers
    both from this report. `created` is the creation time of the service: if two
    services select one endpoint and only one may route to it, the older service may.
    `falls_back`: the gateway itself falls back to the entries of the second priority
    with routable endpoints, so the list has those too.
    """

    name: Name
    uid: Id
    sequence: SentAt
    created: Id = ""
    entries: Annotated[list[EntrySelection], Field(max_length=SERVICE_ENTRIES_MAX)] = (
        Field(default_factory=list)
    )
    routed: Annotated[list[Name], Field(max_length=ROUTE_BACKENDS_MAX)] = Field(
        default_factory=list
    )
    version: SentAt = 0
    falls_back: bool = False
    gone: bool = False


class SelectedEndpoint(Message):
    """A routable endpoint.

    `shared_with` is an older service that selects it too. `cluster` is set for a
    ModelReplica.
    """

    name: Name
    url: Id
    backend: Name
    rewrite_path: Id | None = None
    cluster: Name = ""
    shared_with: Name = ""


class EntryEndpoints(Message):
    """The number of endpoints of an entry, and the first of its routable endpoints.

    `endpoints` is empty while entries of a smaller priority have routable endpoints
    (`standby`), unless the gateway falls back to this entry. It is also empty if the
    earlier entries use up all backends of a route.
    """

    matched: int = 0
    ready: int = 0
    standby: bool = False
    endpoints: Annotated[
        list[SelectedEndpoint], Field(max_length=ROUTE_BACKENDS_MAX)
    ] = Field(default_factory=list)


class ServiceEndpoints(Message):
    """The endpoints of each entry, as of the service's report with this `sequence`.

    `version` orders the messages of the directory to the service.
    """

    uid: Id
    sequence: SentAt
    version: SentAt
    entries: Annotated[list[EntryEndpoints], Field(max_length=SERVICE_ENTRIES_MAX)] = (
        Field(default_factory=list)
    )


class Routed(Message):
    """All endpoints in the route of a service, as of a version of its list.

    The version is the receiver's own. It may be ahead of the clock if the clock was set
    back in the meantime.
    """

    service: Name
    uid: Id
    version: int
    endpoints: Annotated[list[Name], Field(max_length=ROUTE_BACKENDS_MAX)] = Field(
        default_factory=list
    )


# The gateway


class GatewayUse(Message):
    """Registers a service or endpoint with the gateway, which signals it about changes.

    `used` False unregisters. `sequence` orders the registrations of the object with
    this `uid`.
    """

    kind: Literal["ModelService", "ModelEndpoint"]
    namespace: Name
    name: Name
    uid: Id
    sequence: SentAt
    used: bool = True


class TimeoutSupport(Message):
    """The route timeouts that the GatewayClass of the gateway supports.

    `problem`: the reason why a timeout is not supported, or why the support is not
    known.
    """

    gateway_class: Name = ""
    request: bool = False
    backend_request: bool = False
    problem: Text = ""


class GatewayChanged(Message):
    """The state of the gateway, for services and endpoints.

    - `sequence`: orders the reports of the gateway with this `uid`.
    - `connected`: objects can be applied on the control cluster.
    - `problem`: the reason why they cannot, or why there is no address.
    - `connects`: counts the connections. After a new connection, the objects on the
      control cluster may differ from the applied ones.
    - `isolates_backends`: two services may route to one endpoint. With older versions
      of the gateway, one service would get the rewrites of the other.
    - `denied_cidrs`: networks where endpoints may not be; None while that is not known.
    - `timeouts`: the timeouts that a route may have; None while that is not known.
    - `backend`: the implementation of the gateway, which decides the objects of a route.
    """

    uid: Id
    sequence: SentAt
    present: bool = True
    connected: bool = False
    connects: int = 0
    address: Id = ""
    problem: Text = ""
    isolates_backends: bool = True
    denied_cidrs: Annotated[list[Id], Field(max_length=DENIED_NETWORKS_MAX)] | None = (
        None
    )
    timeouts: TimeoutSupport | None = None
    backend: GatewayBackend = "Traefik"
