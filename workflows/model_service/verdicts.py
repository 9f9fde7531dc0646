"""The conditions of a ModelService: pure, from its state."""

from datetime import datetime

from api_types.limits import ROUTE_BACKENDS_MAX
from api_types.messages.routing import BACKEND_TIMEOUT, REQUEST_TIMEOUT
from workflows.entity import backoff
from workflows.entity.conditions import FALSE, TRUE, UNKNOWN, Verdict, is_true
from workflows.model_service.decisions import (
    SHOWN_MAX,
    falls_back,
    is_outside,
    is_shared,
    retries_of,
    timeout_support,
    timeouts_of,
)
from workflows.model_service.state import UNRESOLVED_AFTER, ServiceState

# Reasons of `EndpointsResolved` while the endpoints are unknown, and without any.
RESOLVING = "Resolving"
NO_ENDPOINTS = "NoEndpoints"


def endpoints_resolved(state: ServiceState) -> Verdict:
    """Return the EndpointsResolved condition."""
    found = state.selected
    if found is None:
        return Verdict(
            UNKNOWN, RESOLVING, "the endpoints of the namespace are not known yet"
        )
    matched, ready = (
        sum(entry.matched for entry in found.entries),
        sum(entry.ready for entry in found.entries),
    )
    if not matched:
        return Verdict(
            FALSE, NO_ENDPOINTS, "No ModelEndpoints matched the configured selectors"
        )
    waiting = f"; {matched - ready} waiting for Backend" if matched > ready else ""
    return Verdict(TRUE, "Resolved", f"Matched {matched} endpoint(s){waiting}")


def lost_at(state: ServiceState) -> datetime | None:
    """Return when a missing route counts as lost; None while the watch sees it.

    The observation may be older than the last apply, so the route does not count as
    lost at once.
    """
    seen = state.observed
    if state.applied is None or seen is None or seen.present or not state.drift_since:
        return None
    return datetime.fromisoformat(state.drift_since) + backoff.repair(0)


def routing_ready(state: ServiceState, now: datetime) -> Verdict:
    """Return the RoutingReady condition: whether the gateway routes requests."""
    if problem := gateway_problem(state):
        return Verdict(FALSE, "WaitingForGateway", problem)
    if state.failure.type:
        return Verdict(
            FALSE, "Configuring", f"{state.failure.type}: {state.failure.message}"
        )
    if others := shared_with(state):
        return Verdict(
            FALSE,
            "BackendShared",
            f"ModelService {', '.join(others)} already routes endpoints of this service, "
            "and this version of Traefik cannot separate the two; "
            "upgrade Traefik or select other endpoints",
        )
    if outside := _outside(state):
        return Verdict(
            FALSE,
            "EndpointsUnsupported",
            f"requests do not go to {outside}: an InferenceGateway with backend Envoy "
            "routes to replicas only; select replicas, or use backend Traefik",
        )
    if state.applied is None:
        return Verdict(FALSE, "Configuring", "there is no route yet")
    if not state.applied.backends:
        matched = (
            sum(each.matched for each in state.selected.entries)
            if state.selected
            else 0
        )
        why = "no endpoint is ready" if matched else "no published endpoint matches"
        return Verdict(FALSE, "Configuring", f"{why}; the gateway answers 503")
    if (lost := lost_at(state)) and lost <= now:
        return Verdict(
            FALSE,
            "Configuring",
            "another client deleted the HTTPRoute; it is applied again",
        )
    return _accepted_by_gateway(state, now)


def shared_with(state: ServiceState) -> list[str]:
    """Return the services whose endpoints this service may therefore not route."""
    entries = state.selected.entries if state.selected else []
    names: set[str] = set()
    for entry in entries:
        names.update(
            each.shared_with for each in entry.endpoints if is_shared(state, each)
        )
    return sorted(names)


def _outside(state: ServiceState) -> str:
    entries = state.selected.entries if state.selected else []
    found = sorted(
        each.name
        for entry in entries
        for each in entry.endpoints
        if is_outside(state, each)
    )
    more = f" and {len(found) - SHOWN_MAX} more" * (len(found) > SHOWN_MAX)
    return f"ModelEndpoint {', '.join(found[:SHOWN_MAX])}{more}" if found else ""


def retries_ready(state: ServiceState) -> Verdict | None:
    """Return the RetriesReady condition; None if the spec has no retries."""
    if retries_of(state) is None:
        return None
    applied = state.applied
    if applied is None or not (applied.middleware or applied.middleware_problem):
        return Verdict(
            UNKNOWN,
            "Configuring",
            "the Middleware of the route has not been applied yet",
        )
    if applied.middleware_problem:
        return Verdict(
            FALSE,
            "MiddlewareUnavailable",
            f"requests are routed but not retried: {applied.middleware_problem}",
        )
    if falls_back(state):
        return Verdict(TRUE, "PolicyApplied", "")
    return Verdict(TRUE, "MiddlewareApplied", "")


def timeouts_ready(state: ServiceState) -> Verdict | None:
    """Return the TimeoutsReady condition; None if the spec has no timeouts."""
    wanted, support = timeouts_of(state), timeout_support(state)
    if wanted is None:
        return None
    if state.applied is not None and state.applied.timeouts == wanted:
        return Verdict(TRUE, "TimeoutsApplied", "")
    if support is None:
        return Verdict(
            UNKNOWN,
            "Configuring",
            "the timeouts that the gateway supports are not known yet",
        )
    if support.problem:
        return Verdict(
            FALSE,
            "SupportUnknown",
            f"requests are routed, but the timeouts that GatewayClass "
            f"{support.gateway_class} supports are unknown: {support.problem}",
        )
    lacking: list[tuple[str, str]] = []
    if wanted.request is not None and not support.request:
        lacking.append(("request", REQUEST_TIMEOUT))
    if wanted.backend_request is not None and not support.backend_request:
        lacking.append(("backendRequest", BACKEND_TIMEOUT))
    if not lacking:
        return Verdict(
            UNKNOWN, "Configuring", "the route has not been applied with timeouts yet"
        )
    fields, features = (" and ".join(each) for each in zip(*lacking, strict=True))
    return Verdict(
        FALSE,
        "TimeoutsUnsupported",
        f"requests are routed without {fields}: GatewayClass {support.gateway_class} "
        f"does not list {features} in status.supportedFeatures; "
        "set timeouts in clients, or use a gateway that supports them",
    )


def gateway_problem(state: ServiceState) -> str:
    """Return why the gateway cannot be used; empty if it can."""
    gateway = state.gateway
    if gateway.problem:
        return gateway.problem
    if gateway.known is None:
        return "InferenceGateway default has not answered yet"
    return (
        "" if gateway.known.address else "InferenceGateway default has no address yet"
    )


def _accepted_by_gateway(state: ServiceState, now: datetime) -> Verdict:
    applied, seen = state.applied, state.observed
    was_ready = is_true(state.conditions, "RoutingReady")
    if (
        applied is None
        or seen is None
        or not seen.present
        or seen.generation < applied.generation
    ):
        return (
            Verdict(TRUE, "RouteConfigured", truncated(state))
            if was_ready
            else Verdict(FALSE, "Configuring", "the gateway has not seen the route yet")
        )
    if not seen.accepted:
        return Verdict(
            FALSE,
            "Configuring",
            seen.message or "the gateway has not accepted the route",
        )
    if not seen.resolved:
        since = (
            datetime.fromisoformat(state.unresolved_since)
            if state.unresolved_since
            else now
        )
        if now - since >= UNRESOLVED_AFTER:
            return Verdict(
                FALSE,
                "BackendRefsUnresolved",
                seen.message or "the gateway cannot resolve a backend",
            )
        return (
            Verdict(TRUE, "RouteConfigured", truncated(state))
            if was_ready
            else Verdict(FALSE, "Configuring", seen.message)
        )
    return Verdict(TRUE, "RouteConfigured", truncated(state))


def truncated(state: ServiceState) -> str:
    """Return how many endpoints are routed if a route cannot hold all; otherwise empty.

    The applied route may be older than the endpoints, and endpoints may have no weight.
    So fewer routed than ready endpoints are no reason.
    """
    entries = state.selected.entries if state.selected else []
    ready = sum(entry.ready for entry in entries if not entry.standby)
    if state.applied is None or ready <= ROUTE_BACKENDS_MAX:
        return ""
    return f"{len(state.applied.backends)} of {ready} endpoints routed"
