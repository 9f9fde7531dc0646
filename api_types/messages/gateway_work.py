"""Input and output of the activities that work on the control cluster, and what its watch reports.

None of them names the cluster: a worker knows it by its settings (`controlCluster`).
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
from api_types.messages.routing import EndpointOwner, SelectedEndpoint, TimeoutSupport

# --- backends -----------------------------------------------------------------------------------------------------------------------


class ApplyBackend(Message):
    """Apply the Service and the EndpointSlice of an endpoint, which is named like its owner."""

    owner: EndpointOwner
    namespace: Name
    name: Name
    uid: Id
    url: Id


class AppliedBackend(Message):
    """The Service that was applied, and a digest over what was stored of it and of its slice."""

    backend: Name
    digest: Id


class RemoveBackend(Message):
    """Delete the slices of an endpoint, then its Service. What belongs to another owner is left."""

    owner: EndpointOwner
    namespace: Name
    name: Name
    uid: Id


# --- routes -------------------------------------------------------------------------------------------------------------------------


class RouteEntry(Message):
    """One entry of a service: its share, and endpoints of it that can be routed, by name; none if other entries serve in its place."""

    weight: int = 1
    endpoints: Annotated[list[SelectedEndpoint], Field(max_length=ROUTE_BACKENDS_MAX)] = Field(default_factory=list)


class RouteRetries(Message):
    """How often the gateway sends a request again of which nothing was sent to an endpoint, or that got one of the codes, and how soon."""

    attempts: Annotated[int, Field(ge=1, le=RETRIES_MAX)] = 1
    codes: Annotated[list[Annotated[int, Field(ge=min(RETRY_CODES), le=max(RETRY_CODES))]], Field(max_length=len(RETRY_CODES))] = Field(
        default_factory=list
    )
    backoff_milliseconds: Annotated[int, Field(ge=0, le=RETRY_BACKOFF_MILLISECONDS_MAX)] = 100


class RouteTimeouts(Message):
    """After which times the gateway ends a request, and one attempt to send it to an endpoint: durations of the Gateway API."""

    request: Annotated[str, Field(max_length=DURATION_MAX)] | None = None
    backend_request: Annotated[str, Field(max_length=DURATION_MAX)] | None = None


class ApplyRoute(Message):
    """Spread the shares of a service over its endpoints, and apply its HTTPRoute. Without endpoints the route has no backends.

    `retries` is what its Middleware shall do, None for a route without one; `middleware_left` says that there may be one of before.
    `timeouts` are those of its rule that the gateway supports, None for a rule without any.
    `gateway_recovers`: the control cluster did not answer a moment ago, so its gateway may not load what is new yet.
    """

    namespace: Name
    name: Name
    uid: Id
    entries: Annotated[list[RouteEntry], Field(max_length=SERVICE_ENTRIES_MAX)] = Field(default_factory=list)
    retries: RouteRetries | None = None
    middleware_left: bool | None = None
    timeouts: RouteTimeouts | None = None
    gateway_recovers: bool | None = None


class BackendShare(Message):
    """An endpoint in a route, and its weight."""

    endpoint: Name
    weight: int


class AppliedRoute(Message):
    """The route that was applied: its generation, a digest over what was stored, and its backends, in the order of entries and names.

    `middleware` is a digest over its Middleware, empty for a route that names none; `middleware_problem` says why it names none.
    `timeouts` are those that its rule has.
    """

    name: Name
    generation: int = 0
    digest: Id = ""
    backends: Annotated[list[BackendShare], Field(max_length=ROUTE_BACKENDS_MAX)] = Field(default_factory=list)
    middleware: Id = ""
    middleware_problem: Text = ""
    timeouts: RouteTimeouts | None = None


class RemoveRoute(Message):
    """Delete the HTTPRoute of a service, then the Middleware that there may be. What belongs to another owner is left.

    `taken_over`: also those that an earlier service of its name has left, whose workflow was terminated.
    """

    namespace: Name
    name: Name
    uid: Id
    middleware_left: bool | None = None
    taken_over: bool | None = None


# --- the gateway --------------------------------------------------------------------------------------------------------------------


class GatewayFacts(Message):
    """What was found out about the control cluster when it was connected. `uid` tells it from other clusters.

    `denied_cidrs`: networks where endpoints may not be; None from workers that do not look.
    """

    kubernetes_version: Id = ""
    uid: Id = ""
    denied_cidrs: Annotated[list[Id], Field(max_length=DENIED_NETWORKS_MAX)] | None = None


class WatchGateway(Message):
    """Watch the control cluster until cancelled.

    `number` counts the watches of the InferenceGateway with this uid. `began` orders the watches of
    all gateways that follow one another; earlier versions do not send it.
    """

    uid: Id
    number: int = 0
    began: SentAt = 0


class ObservedGateway(Message):
    """The gateway as the control cluster shows it: an address, or why there is none. `accepted`: its class and it are in use.

    `timeouts`: which ones its class supports; None while that is not known.
    """

    reachable: bool
    error: Text = ""
    accepted: bool = False
    address: Id = ""
    message: Text = ""
    timeouts: TimeoutSupport | None = None


class ObservedServiceRoute(Message):
    """The HTTPRoute of a service. `accepted`, `resolved`: what the gateway says of its current generation, with its text if it says no.

    `middleware` is a digest over the Middleware that it names, empty if that does not exist; None if it names none, or it is not known.
    """

    present: bool
    generation: int = 0
    digest: Id = ""
    accepted: bool = False
    resolved: bool = False
    message: Text = ""
    middleware: Id | None = None


class ObservedBackend(Message):
    """The Service and slice of an endpoint: a digest over both as they are stored; empty if one of them is missing."""

    digest: Id = ""


class ControlObserved(Message):
    """The signal `control_observed`: exactly one of the parts is set. `run` and `sequence` tell it from older ones."""

    owner_uid: Id
    gateway_uid: Id
    run: SentAt = 0
    sequence: SentAt = 0
    gateway: ObservedGateway | None = None
    route: ObservedServiceRoute | None = None
    backend: ObservedBackend | None = None


# --- its installation ---------------------------------------------------------------------------------------------------------------

InstallStep = Literal["crds", "metallb", "address-pool", "traefik", "gateway-class", "gateway"]
"""A part of what is installed on the control cluster; each needs those before it. MetalLB and its addresses only where they are wanted."""

INSTALL_STEPS: tuple[InstallStep, ...] = ("crds", "metallb", "address-pool", "traefik", "gateway-class", "gateway")


class RunInstallStep(Message):
    """Bring one part of the installation to what the spec says, or with `remove` take it away. What is as it should be is left alone.

    `traefik_version` is that of the chart, `address_pool` the addresses for MetalLB.
    """

    uid: Id
    step: InstallStep
    traefik_version: Name = ""
    address_pool: Name = ""
    remove: bool = False


class InstallStepResult(Message):
    """Whether the step is complete; otherwise what it waits for."""

    done: bool
    message: Text = ""
