"""Messages about endpoints, services and the gateway: between their workflows, and with the EndpointDirectory of each namespace.

An endpoint is owned by a ModelReplica, or by a ModelEndpoint that a user wrote. Its owner makes its backend on the control cluster and
reports it to the directory; each ModelService reports what it selects, gets the endpoints that match, and says which of them its route has.
"""

from typing import Annotated, Literal

from pydantic import Field

from api_types.base import Id, Message, Name, SentAt, Text
from api_types.limits import DENIED_NETWORKS_MAX, ROUTE_BACKENDS_MAX, SERVICE_ENTRIES_MAX

Labels = dict[str, str]
EndpointOwner = Literal["ModelReplica", "ModelEndpoint"]

REQUEST_TIMEOUT, BACKEND_TIMEOUT = "HTTPRouteRequestTimeout", "HTTPRouteBackendTimeout"
"""The features of the Gateway API by which a GatewayClass says that routes may have `timeouts.request` and `timeouts.backendRequest`."""


class Endpoint(Message):
    """One endpoint as services see it.

    `uid` is that of its owner. `backend` names its Service on the control cluster; it is empty while there is none, and then nothing is
    routed to it. `cluster` is that of a ModelReplica.
    """

    name: Name
    uid: Id
    cluster: Name = ""
    labels: Labels = Field(default_factory=dict)
    url: Id
    rewrite_path: Id | None = None
    backend: Name = ""


class EndpointReport(Message):
    """An owner's report of its endpoint. Without an endpoint it is withdrawn: no service may route it any more.

    `sequence` orders the reports of the owner with this uid. `gone`: the owner has nothing to withdraw any more, and need not be told.
    """

    owner: EndpointOwner
    name: Name
    uid: Id
    sequence: SentAt
    endpoint: Endpoint | None = None
    gone: bool = False


class EndpointWithdrawn(Message):
    """No route has the endpoint any more, as of the owner's report with this sequence.

    The sequence is the receiver's own, so it may be ahead of a clock that was set back since.
    """

    uid: Id
    sequence: int


class EntrySelection(Message):
    """What one entry of a service selects by, and its place in the order of failover (smaller ones first)."""

    match_labels: Labels = Field(default_factory=dict)
    priority: int = 0


class ServiceReport(Message):
    """What a service selects. A service that is gone selects nothing, and has no route.

    `routed` are the endpoints that its route has now, and `version` is that of the list that it has; a directory that lost its state learns
    both from this. `created` is when the service was: of two services that select one endpoint, the older one may route it where only one
    may.
    """

    name: Name
    uid: Id
    sequence: SentAt
    created: Id = ""
    entries: Annotated[list[EntrySelection], Field(max_length=SERVICE_ENTRIES_MAX)] = Field(default_factory=list)
    routed: Annotated[list[Name], Field(max_length=ROUTE_BACKENDS_MAX)] = Field(default_factory=list)
    version: SentAt = 0
    gone: bool = False


class SelectedEndpoint(Message):
    """An endpoint that can be routed. `shared_with` names an older service that selects it too; `cluster` is that of a ModelReplica."""

    name: Name
    url: Id
    backend: Name
    rewrite_path: Id | None = None
    cluster: Name = ""
    shared_with: Name = ""


class EntryEndpoints(Message):
    """What an entry selects: how many endpoints, how many of them can be routed, and by name the first of these.

    It lists none while entries of a smaller priority have endpoints that can be routed (`standby`), and none if so many entries before it
    have some that a route cannot have one of each.
    """

    matched: int = 0
    ready: int = 0
    standby: bool = False
    endpoints: Annotated[list[SelectedEndpoint], Field(max_length=ROUTE_BACKENDS_MAX)] = Field(default_factory=list)


class ServiceEndpoints(Message):
    """What each entry of a service selects, as of its report with this `sequence`. `version` orders what the directory sends to it."""

    uid: Id
    sequence: SentAt
    version: SentAt
    entries: Annotated[list[EntryEndpoints], Field(max_length=SERVICE_ENTRIES_MAX)] = Field(default_factory=list)


class Routed(Message):
    """Which endpoints the route of a service has, and no others, as of this version of its list.

    The version is the receiver's own, so it may be ahead of a clock that was set back since.
    """

    service: Name
    uid: Id
    version: int
    endpoints: Annotated[list[Name], Field(max_length=ROUTE_BACKENDS_MAX)] = Field(default_factory=list)


# --- the gateway --------------------------------------------------------------------------------------------------------------------


class GatewayUse(Message):
    """A service or endpoint registers with the gateway, to be told of its changes; `used` False unregisters.

    `sequence` orders the registrations of the object with this `uid`.
    """

    kind: Literal["ModelService", "ModelEndpoint"]
    namespace: Name
    name: Name
    uid: Id
    sequence: SentAt
    used: bool = True


class TimeoutSupport(Message):
    """Which timeouts of a route the GatewayClass of the gateway says that it supports. `problem`: why it cannot be told, or is not."""

    gateway_class: Name = ""
    request: bool = False
    backend_request: bool = False
    problem: Text = ""


class GatewayChanged(Message):
    """What services and endpoints must know of the gateway; `sequence` orders what the gateway with this `uid` reports.

    `connected`: objects can be applied on the control cluster. `problem` says why not, or why there is no address. `connects` counts the
    connections so far: with a new one, what is on the control cluster may be other than what was applied. `isolates_backends`: two services
    may route one endpoint; with older versions of the gateway one would get the rewrites of the other. `denied_cidrs`: networks where
    endpoints may not be; None while that is not known. `timeouts`: which ones a route may have; None while that is not known.
    """

    uid: Id
    sequence: SentAt
    present: bool = True
    connected: bool = False
    connects: int = 0
    address: Id = ""
    problem: Text = ""
    isolates_backends: bool = True
    denied_cidrs: Annotated[list[Id], Field(max_length=DENIED_NETWORKS_MAX)] | None = None
    timeouts: TimeoutSupport | None = None
