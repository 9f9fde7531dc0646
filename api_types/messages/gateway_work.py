"""Input and output of the activities on the control cluster, and reports of its watch.

No message identifies the cluster: a worker knows it from its setting `controlCluster`.
"""

from typing import Annotated, Literal

from pydantic import Field

from api_types.base import Id, Message, Name, SentAt, Text
from api_types.limits import (
    DENIED_NETWORKS_MAX,
    DURATION_MAX,
    RETRIES_MAX,
    RETRY_BACKOFF_MILLISECONDS_MAX,
    RETRY_CODES,
    ROUTE_BACKENDS_MAX,
    SERVICE_ENTRIES_MAX,
)
from api_types.messages.routing import (
    EndpointOwner,
    GatewayBackend,
    SelectedEndpoint,
    TimeoutSupport,
)
from api_types.messages.versions import ObservationOrder

# Backends


class ApplyBackend(Message):
    """Apply the Service and the EndpointSlice of an endpoint, named like its owner."""

    owner: EndpointOwner
    namespace: Name
    name: Name
    uid: Id
    url: Id


class AppliedBackend(Message):
    """The applied Service, and a digest of the stored Service and EndpointSlice."""

    backend: Name
    digest: Id


class RemoveBackend(Message):
    """Delete the slices of an endpoint, then its Service.

    Objects of another owner are kept. With `of_predecessors`, objects of earlier owners
    of the same kind and name are deleted too.
    """

    owner: EndpointOwner
    namespace: Name
    name: Name
    uid: Id
    of_predecessors: bool = False


# Routes


class RouteEntry(Message):
    """One entry of a service: its share, and its routable endpoints by name.

    It has no endpoints if other entries serve instead, and the gateway cannot fall back
    to it. With `standby` the gateway falls back to it.
    """

    weight: int = 1
    standby: bool | None = None
    endpoints: Annotated[
        list[SelectedEndpoint], Field(max_length=ROUTE_BACKENDS_MAX)
    ] = Field(default_factory=list)


class RouteRetries(Message):
    """The retry policy of the gateway.

    The gateway retries requests that reached no endpoint, and responses with one of the
    codes.
    """

    attempts: Annotated[int, Field(ge=1, le=RETRIES_MAX)] = 1
    codes: Annotated[
        list[Annotated[int, Field(ge=min(RETRY_CODES), le=max(RETRY_CODES))]],
        Field(max_length=len(RETRY_CODES)),
    ] = Field(default_factory=list)
    backoff_milliseconds: Annotated[
        int, Field(ge=0, le=RETRY_BACKOFF_MILLISECONDS_MAX)
    ] = 100


class RouteTimeouts(Message):
    """Timeouts of a request, and of one attempt to send it to an endpoint.

    Both are durations of the Gateway API.
    """

    request: Annotated[str, Field(max_length=DURATION_MAX)] | None = None
    backend_request: Annotated[str, Field(max_length=DURATION_MAX)] | None = None


class ApplyRoute(Message):
    """Distribute the shares of a service over its endpoints, and apply its HTTPRoute.

    Without endpoints the route has no backends. `retries` configures its Middleware;
    None means a route without one. `middleware_left`: an earlier Middleware may exist.
    `timeouts` are the timeouts that the gateway supports; None means a rule without
    timeouts. `gateway` is the implementation of the gateway, None for Traefik.
    `gateway_recovers`: the control cluster just recovered, so its gateway may not load
    new objects yet.
    """

    namespace: Name
    name: Name
    uid: Id
    entries: Annotated[list[RouteEntry], Field(max_length=SERVICE_ENTRIES_MAX)] = Field(
        default_factory=list
    )
    retries: RouteRetries | None = None
    middleware_left: bool | None = None
    timeouts: RouteTimeouts | None = None
    gateway: GatewayBackend | None = None
    gateway_recovers: bool | None = None


class BackendShare(Message):
    """An endpoint in a route, and its weight."""

    endpoint: Name
    weight: int


class AppliedRoute(Message):
    """The applied route, with its generation and a digest of the stored object.

    The backends are in the order of entries and names. `middleware` is a digest of its
    Middleware, or of the Backends, policy and filter of Envoy Gateway; it is empty for a
    route without them. `middleware_problem` is then the reason.
    `timeouts` are the timeouts of its rule.
    """

    name: Name
    generation: int = 0
    digest: Id = ""
    backends: Annotated[list[BackendShare], Field(max_length=ROUTE_BACKENDS_MAX)] = (
        Field(default_factory=list)
    )
    middleware: Id = ""
    middleware_problem: Text = ""
    timeouts: RouteTimeouts | None = None


class RemoveRoute(Message):
    """Delete the HTTPRoute of a service, then the objects that it refers to.

    Objects of another owner are kept. With `of_predecessors`, objects of earlier owners
    of the same kind and name are deleted too. `gateway` is the implementation that has
    had them, None for Traefik.
    """

    namespace: Name
    name: Name
    uid: Id
    of_predecessors: bool = False
    middleware_left: bool | None = None
    gateway: GatewayBackend | None = None


# The gateway


class GatewayFacts(Message):
    """Properties of the connected control cluster.

    `uid` distinguishes clusters.

    `denied_cidrs`: networks where endpoints may not be; None from workers that do not
    check.
    """

    kubernetes_version: Id = ""
    uid: Id = ""
    denied_cidrs: Annotated[list[Id], Field(max_length=DENIED_NETWORKS_MAX)] | None = (
        None
    )


class WatchGateway(Message):
    """Watch the control cluster until cancelled.

    `number` counts the watches of the InferenceGateway with this uid. `began` orders
    the watches of all successive gateways; earlier versions do not send it. `gateway` is
    its implementation, None for Traefik.
    """

    uid: Id
    number: int = 0
    began: SentAt = 0
    gateway: GatewayBackend | None = None


class ObservedGateway(Message):
    """The state of the gateway on the control cluster: its address or a message.

    `accepted`: the gateway and its class are accepted. `timeouts`: the timeouts that
    its class supports; None while that is not known.
    """

    reachable: bool
    error: Text = ""
    accepted: bool = False
    address: Id = ""
    message: Text = ""
    timeouts: TimeoutSupport | None = None


class ObservedServiceRoute(Message):
    """The HTTPRoute of a service.

    `accepted`, `resolved`: the gateway's conditions for the current generation, with a
    message if one is false. `middleware` is a digest of its Middleware or of its objects
    of Envoy Gateway, empty if none exists; None if the route has none, or if it is not
    known.
    """

    present: bool
    generation: int = 0
    digest: Id = ""
    accepted: bool = False
    resolved: bool = False
    message: Text = ""
    middleware: Id | None = None


class ObservedBackend(Message):
    """A digest of an endpoint's stored Service and slice; empty if either is missing."""

    digest: Id = ""


class ControlObserved(Message):
    """The signal `control_observed`: exactly one of the parts is set.

    `run` and `sequence` order the signals.
    """

    owner_uid: Id
    gateway_uid: Id
    run: SentAt = 0
    sequence: SentAt = 0
    gateway: ObservedGateway | None = None
    route: ObservedServiceRoute | None = None
    backend: ObservedBackend | None = None

    @property
    def order(self) -> ObservationOrder:
        """Return the place among the observations of the control cluster."""
        return ObservationOrder(
            cluster="control",
            cluster_uid=self.gateway_uid,
            run=self.run,
            sequence=self.sequence,
        )


# Installation

InstallStep = Literal[
    "crds",
    "metallb",
    "address-pool",
    "traefik",
    "envoy-gateway",
    "gateway-class",
    "gateway",
]
"""A part of the installation on the control cluster.

Each part needs the parts before it. MetalLB and its addresses are optional, and each
backend has its own release.
"""

INSTALL_STEPS: tuple[InstallStep, ...] = (
    "crds",
    "metallb",
    "address-pool",
    "traefik",
    "envoy-gateway",
    "gateway-class",
    "gateway",
)


class RunInstallStep(Message):
    """Apply one part of the installation, or with `remove` delete it.

    Objects that are up to date are not changed. `traefik_version` and `envoy_version`
    are the versions of the charts; only that of the `backend` is set. `address_pool` has
    the addresses for MetalLB. With `of_predecessors`, objects of earlier gateways are
    deleted, too.
    """

    uid: Id
    step: InstallStep
    traefik_version: Name = ""
    address_pool: Name = ""
    remove: bool = False
    backend: GatewayBackend = "Traefik"
    envoy_version: Name = ""
    of_predecessors: bool = False


class InstallStepResult(Message):
    """Whether the step is complete. If not, `message` is the reason why it waits."""

    done: bool
    message: Text = ""
