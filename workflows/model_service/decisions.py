"""The objects and conditions of a ModelService: pure, from its state."""

import ipaddress
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from api_types.digests import report_digest
from api_types.limits import ROUTE_BACKENDS_MAX
from api_types.messages.gateway_work import (
    ApplyRoute,
    RouteEntry,
    RouteRetries,
    RouteTimeouts,
)
from api_types.messages.routing import (
    BACKEND_TIMEOUT,
    REQUEST_TIMEOUT,
    EntryEndpoints,
    EntrySelection,
    SelectedEndpoint,
    ServiceEndpoints,
    TimeoutSupport,
)
from workflows.entity import backoff
from workflows.entity.conditions import FALSE, TRUE, UNKNOWN, Verdict, is_true
from workflows.model_service.state import UNRESOLVED_AFTER, ServiceState

# Reasons of `EndpointsResolved` while the endpoints are unknown, and without any.
RESOLVING = "Resolving"
NO_ENDPOINTS = "NoEndpoints"

_ENTRIES_SHOWN = 5


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
    wanted, support = timeouts_of(state), _timeout_support(state)
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


def _timeout_support(state: ServiceState) -> TimeoutSupport | None:
    return state.gateway.known.timeouts if state.gateway.known else None


def entry_title(entry: dict[str, Any]) -> str:
    """Return the name of an entry, or the labels that it selects."""
    labels = entry["selector"].get("matchLabels") or {}
    return (
        entry.get("name")
        or ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        or "all"
    )


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


def shared_with(state: ServiceState) -> list[str]:
    """Return the services whose endpoints this service may therefore not route."""
    entries = state.selected.entries if state.selected else []
    names: set[str] = set()
    for entry in entries:
        names.update(
            each.shared_with for each in entry.endpoints if is_shared(state, each)
        )
    return sorted(names)


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


# Conditions


def endpoints_resolved(state: ServiceState) -> Verdict:
    """Return the EndpointsResolved condition: what the selectors match."""
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


def _outside(state: ServiceState) -> str:
    entries = state.selected.entries if state.selected else []
    found = sorted(
        each.name
        for entry in entries
        for each in entry.endpoints
        if is_outside(state, each)
    )
    more = f" and {len(found) - _ENTRIES_SHOWN} more" * (len(found) > _ENTRIES_SHOWN)
    return f"ModelEndpoint {', '.join(found[:_ENTRIES_SHOWN])}{more}" if found else ""


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
    wanted, support = timeouts_of(state), _timeout_support(state)
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


# Status


def address(state: ServiceState, namespace: str, name: str) -> str:
    """Return the address of the service; empty without a gateway address."""
    gateway = (
        state.gateway.known.address
        if state.gateway.known and state.gateway.known.present
        else ""
    )
    if not gateway:
        return ""
    return f"http://{_in_brackets(gateway)}/{namespace}/{name}"


def _in_brackets(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return f"[{host}]" if isinstance(address, ipaddress.IPv6Address) else host


def status_of(state: ServiceState, namespace: str, name: str) -> dict[str, Any]:
    """Return address, route, entries and routed endpoints."""
    status: dict[str, Any] = {}
    if found := address(state, namespace, name):
        status["address"] = found
    selected = (
        state.selected.entries
        if state.selected and len(state.selected.entries) == len(entries_of(state))
        else []
    )
    weights = (
        {share.endpoint: share.weight for share in state.applied.backends}
        if state.applied
        else {}
    )
    status["entries"] = [
        {
            "name": entry_title(entry),
            "weight": entry.get("weight", 1),
            "priority": entry.get("priority", 0),
            "matched": found.matched,
            "ready": found.ready,
            "routed": sum(endpoint.name in weights for endpoint in found.endpoints),
            "standby": found.standby,
        }
        for entry, found in zip(entries_of(state), selected, strict=False)
    ]
    status["summary"] = _summary(status["entries"])
    if state.applied:
        status["route"] = state.applied.name
        titles = [str(entry["name"]) for entry in status["entries"]]
        status["endpoints"] = _routed(weights, selected, titles)
    return status


def _summary(entries: Sequence[dict[str, Any]]) -> dict[str, str]:
    ready, matched = (
        sum(entry["ready"] for entry in entries),
        sum(entry["matched"] for entry in entries),
    )
    shown = [
        f"{entry['name']}={entry['weight']}{' (standby)' if entry['standby'] else ''}"
        for entry in entries[:_ENTRIES_SHOWN]
    ]
    more = (
        [f"and {len(entries) - _ENTRIES_SHOWN} more"]
        if len(entries) > _ENTRIES_SHOWN
        else []
    )
    return {"ready": f"{ready}/{matched}", "entries": " ".join([*shown, *more])}


def _routed(
    weights: dict[str, int], entries: Sequence[EntryEndpoints], titles: Sequence[str]
) -> list[dict[str, Any]]:
    known = {
        endpoint.name: endpoint for entry in entries for endpoint in entry.endpoints
    }
    # An endpoint is in the list of one entry only.
    entry_of = {
        endpoint.name: title
        for entry, title in zip(entries, titles, strict=True)
        for endpoint in entry.endpoints
    }
    routed: list[dict[str, Any]] = []
    for name, weight in weights.items():
        shown: dict[str, Any] = {"name": name, "weight": weight}
        if name in known:
            shown["url"] = known[name].url
            if known[name].cluster:
                shown["cluster"] = known[name].cluster
            shown["entry"] = entry_of[name]
        routed.append(shown)
    return routed
