"""The route that a ModelService wants, and how the present route differs: pure."""

from typing import Any, NamedTuple

from api_types.digests import report_digest
from api_types.messages.gateway_work import (
    ApplyRoute,
    RouteEntry,
    RouteRetries,
    RouteTimeouts,
)
from api_types.messages.routing import (
    EntryEndpoints,
    EntrySelection,
    SelectedEndpoint,
    ServiceEndpoints,
    TimeoutSupport,
)
from workflows.model_service.state import ServiceState

# The number of entries or endpoints that a text names.
SHOWN_MAX = 5


class WantedRoute(NamedTuple):
    """The wanted route, and the digest of all its inputs."""

    route: ApplyRoute
    digest: str


def entries_of(state: ServiceState) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (state.spec or {}).get("endpoints", [])
    return found


def selections(state: ServiceState) -> list[EntrySelection]:
    """Return the selection of each entry."""
    return [
        EntrySelection(
            match_labels=entry["selector"].get("matchLabels") or {},
            priority=entry.get("priority", 0),
        )
        for entry in entries_of(state)
    ]


def retries_of(state: ServiceState) -> RouteRetries | None:
    """Return the conditions under which the gateway retries a request.

    Return None if it retries none.
    """
    found = (state.spec or {}).get("retries")
    return None if found is None else RouteRetries.model_validate(found)


def timeouts_of(state: ServiceState) -> RouteTimeouts | None:
    """Return the timeouts of the spec; None without any."""
    found = (state.spec or {}).get("timeouts")
    return None if found is None else RouteTimeouts.model_validate(found)


def supported_timeouts(state: ServiceState) -> RouteTimeouts | None:
    """Return the timeouts of the spec that the route may have; None without any.

    While the gateway's support is unknown, the timeouts of the present route stay.
    """
    wanted, support = timeouts_of(state), timeout_support(state)
    if wanted is None:
        return None
    if support is None or support.problem:
        has = state.applied.timeouts if state.applied else None
        request, backend_request = (
            (has.request is not None, has.backend_request is not None)
            if has
            else (False, False)
        )
    else:
        request, backend_request = support.request, support.backend_request
    found = RouteTimeouts(
        request=wanted.request if request else None,
        backend_request=wanted.backend_request if backend_request else None,
    )
    return found if found.wire() else None


def timeout_support(state: ServiceState) -> TimeoutSupport | None:
    """Return the timeouts that the gateway supports; None while unknown."""
    return state.gateway.known.timeouts if state.gateway.known else None


def current_list(state: ServiceState) -> ServiceEndpoints | None:
    """Return the newest list of endpoints.

    Return None if it belongs to an earlier report, with other entries than the present
    spec.
    """
    found = state.selected
    return (
        found
        if found
        and found.sequence == state.report_sequence
        and len(found.entries) == len(entries_of(state))
        else None
    )


def falls_back(state: ServiceState) -> bool:
    """Return whether the gateway itself falls back to entries of another priority."""
    return state.gateway.known is not None and state.gateway.known.backend == "Envoy"


def has_parts(route: ApplyRoute) -> bool:
    """Return whether a route refers to a Middleware, or to objects of Envoy Gateway."""
    return route.retries is not None or route.gateway == "Envoy"


def is_shared(state: ServiceState, endpoint: SelectedEndpoint) -> bool:
    """Return whether an older service routes an endpoint of this service.

    The gateway cannot separate the two services.
    """
    return bool(
        endpoint.shared_with
        and state.gateway.known
        and not state.gateway.known.isolates_backends
    )


def routable(state: ServiceState, entry: EntryEndpoints) -> list[SelectedEndpoint]:
    """Return the endpoints of an entry that the route of this service may have."""
    return [
        endpoint
        for endpoint in entry.endpoints
        if not is_shared(state, endpoint) and not is_outside(state, endpoint)
    ]


def is_outside(state: ServiceState, endpoint: SelectedEndpoint) -> bool:
    """Return whether the gateway cannot reach an endpoint by its host.

    Envoy tries several endpoints for one request, and writes the host of each, but not
    a path of each. A ModelEndpoint of a user has a path of its own.
    """
    return falls_back(state) and not endpoint.cluster


def wanted_route(state: ServiceState, namespace: str, name: str) -> WantedRoute | None:
    """Return the wanted route; None while it is unknown.

    A service without endpoints has a route too. Without it the gateway would answer
    404, which clients take for a wrong URL and do not retry.
    """
    found = current_list(state)
    if found is None or not state.gateway.connected or state.gateway.known is None:
        return None
    route = ApplyRoute(
        namespace=namespace,
        name=name,
        uid=state.uid,
        entries=[
            RouteEntry(
                weight=entry.get("weight", 1),
                standby=True if selected.standby and falls_back(state) else None,
                endpoints=[]
                if selected.standby and not falls_back(state)
                else routable(state, selected),
            )
            for entry, selected in zip(entries_of(state), found.entries, strict=True)
        ],
        retries=retries_of(state),
        timeouts=supported_timeouts(state),
        gateway="Envoy" if falls_back(state) else None,
    )
    return WantedRoute(
        route, report_digest([route.wire(), state.gateway.known.connects])
    )


def drifted(state: ServiceState) -> bool:
    """Return whether the route on the control cluster differs from the applied one."""
    seen = state.observed
    if seen is None or state.applied is None:
        return False
    # An observation from before the last change does not show the change.
    if middleware_drifted(state):
        return True
    return not seen.present or (
        seen.generation >= state.applied.generation
        and seen.digest != state.applied.digest
    )


def is_taken_over(state: ServiceState) -> bool:
    """Return whether the gateway has accepted the applied route."""
    applied, seen = state.applied, state.observed
    return applied is None or (
        seen is not None
        and seen.present
        and seen.accepted
        and seen.generation >= applied.generation
    )


def middleware_drifted(state: ServiceState) -> bool:
    """Return whether the Middleware of the route differs from the applied one."""
    applied, seen = state.applied, state.observed
    return bool(
        applied
        and applied.middleware
        and seen
        and seen.middleware is not None
        and seen.middleware != applied.middleware
    )


def routed_names(state: ServiceState) -> list[str]:
    """Return the endpoints in the route."""
    return (
        sorted(share.endpoint for share in state.applied.backends)
        if state.applied
        else []
    )
