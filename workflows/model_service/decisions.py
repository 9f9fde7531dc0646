"""What a ModelService applies and shows: pure, from its state."""

import ipaddress
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from api_types.digests import report_digest
from api_types.messages.gateway_work import ApplyRoute, RouteEntry, RouteRetries, RouteTimeouts
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

# Reasons of `EndpointsResolved` while the endpoints are not known yet, and when there are none.
RESOLVING = "Resolving"
NO_ENDPOINTS = "NoEndpoints"

_ENTRIES_SHOWN = 5


class WantedRoute(NamedTuple):
    """The route that is wanted, None for none, and a digest over all that decides about it."""

    route: ApplyRoute | None
    digest: str


def entries_of(state: ServiceState) -> list[dict[str, Any]]:
    """Give the entries of the spec, as JSON."""
    found: list[dict[str, Any]] = (state.spec or {}).get("endpoints", [])
    return found


def selections(state: ServiceState) -> list[EntrySelection]:
    """Give what each entry selects."""
    return [
        EntrySelection(match_labels=entry["selector"].get("matchLabels") or {}, priority=entry.get("priority", 0))
        for entry in entries_of(state)
    ]


def retries_of(state: ServiceState) -> RouteRetries | None:
    """Give which requests are sent again; None if none is."""
    found = (state.spec or {}).get("retries")
    return None if found is None else RouteRetries.model_validate(found)


def timeouts_of(state: ServiceState) -> RouteTimeouts | None:
    """Give the timeouts of the spec; None without any."""
    found = (state.spec or {}).get("timeouts")
    return None if found is None else RouteTimeouts.model_validate(found)


def supported_timeouts(state: ServiceState) -> RouteTimeouts | None:
    """Give the timeouts of the spec that the route may have; None without any.

    While it is not known which the gateway supports, those stay that the route has.
    """
    wanted, support = timeouts_of(state), _timeout_support(state)
    if wanted is None:
        return None
    if support is None or support.problem:
        has = state.applied.timeouts if state.applied else None
        request, backend_request = (has.request is not None, has.backend_request is not None) if has else (False, False)
    else:
        request, backend_request = support.request, support.backend_request
    found = RouteTimeouts(request=wanted.request if request else None, backend_request=wanted.backend_request if backend_request else None)
    return found if found.wire() else None


def _timeout_support(state: ServiceState) -> TimeoutSupport | None:
    return state.gateway.known.timeouts if state.gateway.known else None


def entry_title(entry: dict[str, Any]) -> str:
    """Name an entry for people: by its name, or by the labels that it selects."""
    labels = entry["selector"].get("matchLabels") or {}
    return entry.get("name") or ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "all"


def current_list(state: ServiceState) -> ServiceEndpoints | None:
    """Give the newest list of endpoints; None if it is of another report, and so of other entries, than the spec has now."""
    found = state.selected
    return found if found and found.sequence == state.report_sequence and len(found.entries) == len(entries_of(state)) else None


def _selects_any(found: ServiceEndpoints) -> bool:
    return any(entry.matched for entry in found.entries)


def is_shared(state: ServiceState, endpoint: SelectedEndpoint) -> bool:
    """Tell whether an older service routes an endpoint, and the gateway would confuse the two."""
    return bool(endpoint.shared_with and state.gateway.known and not state.gateway.known.isolates_backends)


def routable(state: ServiceState, entry: EntryEndpoints) -> list[SelectedEndpoint]:
    """Give the endpoints of an entry that the route of this service may have."""
    return [endpoint for endpoint in entry.endpoints if not is_shared(state, endpoint)]


def shared_with(state: ServiceState) -> list[str]:
    """Name the services that route endpoints which this one therefore may not route."""
    entries = state.selected.entries if state.selected else []
    return sorted({each.shared_with for entry in entries for each in entry.endpoints if is_shared(state, each)})


def wanted_route(state: ServiceState, namespace: str, name: str) -> WantedRoute | None:
    """Give the route that is wanted; None while that cannot be told. A service that selects nothing has no route."""
    found = current_list(state)
    if found is None or not state.gateway.connected or state.gateway.known is None:
        return None
    connects = state.gateway.known.connects
    if not _selects_any(found):
        return WantedRoute(None, report_digest(["none", connects]))
    route = ApplyRoute(
        namespace=namespace,
        name=name,
        uid=state.uid,
        entries=[
            RouteEntry(weight=entry.get("weight", 1), endpoints=routable(state, selected))
            for entry, selected in zip(entries_of(state), found.entries, strict=True)
        ],
        retries=retries_of(state),
        timeouts=supported_timeouts(state),
    )
    return WantedRoute(route, report_digest([route.wire(), connects]))


def drifted(state: ServiceState) -> bool:
    """Tell whether the route on the control cluster is not what was applied."""
    seen = state.observed
    if seen is None or not state.applied_digest:
        return False
    if state.applied is None:
        return seen.present
    # What the watch saw before the last change says nothing about it.
    if middleware_drifted(state):
        return True
    return not seen.present or (seen.generation >= state.applied.generation and seen.digest != state.applied.digest)


def is_taken_over(state: ServiceState) -> bool:
    """Tell whether the gateway has accepted the route as it was applied; one that is gone is no more to be accepted."""
    applied, seen = state.applied, state.observed
    return applied is None or (seen is not None and seen.present and seen.accepted and seen.generation >= applied.generation)


def middleware_drifted(state: ServiceState) -> bool:
    """Tell whether the Middleware that the route names is not what was applied."""
    applied, seen = state.applied, state.observed
    return bool(applied and applied.middleware and seen and seen.middleware is not None and seen.middleware != applied.middleware)


def routed_names(state: ServiceState) -> list[str]:
    """Name the endpoints that the route has."""
    return sorted(share.endpoint for share in state.applied.backends) if state.applied else []


# --- conditions -----------------------------------------------------------------------------------------------------------------------


def endpoints_resolved(state: ServiceState) -> Verdict:
    """Say what the selectors match."""
    found = state.selected
    if found is None:
        return Verdict(UNKNOWN, RESOLVING, "the endpoints of the namespace are not known yet")
    matched, ready = sum(entry.matched for entry in found.entries), sum(entry.ready for entry in found.entries)
    if not matched:
        return Verdict(FALSE, NO_ENDPOINTS, "No ModelEndpoints matched the configured selectors")
    waiting = f"; {matched - ready} waiting for Backend" if matched > ready else ""
    return Verdict(TRUE, "Resolved", f"Matched {matched} endpoint(s){waiting}")


def lost_at(state: ServiceState) -> datetime | None:
    """Give when a route counts as lost that was applied, and that the watch does not see any more; None while it sees it.

    What the watch saw may be older than the last apply, so that is not at once.
    """
    seen = state.observed
    if state.applied is None or seen is None or seen.present or not state.drift_since:
        return None
    return datetime.fromisoformat(state.drift_since) + backoff.repair(0)


def routing_ready(state: ServiceState, now: datetime, *, says_404: bool = True, says_lost: bool = True) -> Verdict:
    """Say whether requests are routed; `says_404`: and what the gateway answers to those of a service that selects nothing.

    `says_lost`: also that others have deleted the route.
    """
    if problem := gateway_problem(state):
        return Verdict(FALSE, "WaitingForGateway", problem)
    if state.failure.type:
        return Verdict(FALSE, "Configuring", f"{state.failure.type}: {state.failure.message}")
    if others := shared_with(state):
        return Verdict(
            FALSE,
            "BackendShared",
            f"ModelService {', '.join(others)} routes endpoints that this one selects too; this version of Traefik would confuse them, "
            "upgrade it or select other endpoints",
        )
    if state.applied is None:
        return Verdict(FALSE, "Configuring", _why_no_route(state, says_404=says_404))
    if not state.applied.backends:
        return Verdict(FALSE, "Configuring", "no endpoint is ready; the gateway answers 503")
    if says_lost and (lost := lost_at(state)) and lost <= now:
        return Verdict(FALSE, "Configuring", "others have deleted the HTTPRoute; it is applied again")
    return _accepted_by_gateway(state, now)


def _why_no_route(state: ServiceState, *, says_404: bool) -> str:
    if state.selected is None:
        return "there is no route yet"
    if says_404 and not _selects_any(state.selected):
        return "no published endpoint matches, so there is no route: the gateway answers 404"
    return "nothing can be routed"


def retries_ready(state: ServiceState) -> Verdict | None:
    """Say whether requests are sent again as the spec says; None if it says nothing."""
    if retries_of(state) is None:
        return None
    applied = state.applied
    if applied is None or not (applied.middleware or applied.middleware_problem):
        return Verdict(UNKNOWN, "Configuring", "the Middleware of the route has not been applied yet")
    if applied.middleware_problem:
        return Verdict(FALSE, "MiddlewareUnavailable", f"requests are routed, and none is sent again: {applied.middleware_problem}")
    return Verdict(TRUE, "MiddlewareApplied", "")


def timeouts_ready(state: ServiceState) -> Verdict | None:
    """Say whether the route has the timeouts of the spec; None if it says nothing."""
    wanted, support = timeouts_of(state), _timeout_support(state)
    if wanted is None:
        return None
    if state.applied is not None and state.applied.timeouts == wanted:
        return Verdict(TRUE, "TimeoutsApplied", "")
    if support is None:
        return Verdict(UNKNOWN, "Configuring", "which timeouts the gateway supports is not known yet")
    if support.problem:
        problem = f"which timeouts GatewayClass {support.gateway_class} supports cannot be told: {support.problem}"
        return Verdict(FALSE, "SupportUnknown", f"requests are routed; {problem}")
    lacking = [
        (field, feature)
        for field, feature, is_lacking in (
            ("request", REQUEST_TIMEOUT, wanted.request is not None and not support.request),
            ("backendRequest", BACKEND_TIMEOUT, wanted.backend_request is not None and not support.backend_request),
        )
        if is_lacking
    ]
    if not lacking:
        return Verdict(UNKNOWN, "Configuring", "the route has not been applied with them yet")
    fields, features = (" and ".join(each) for each in zip(*lacking, strict=True))
    return Verdict(
        FALSE,
        "TimeoutsUnsupported",
        f"requests are routed without {fields}: GatewayClass {support.gateway_class} does not list {features} in status.supportedFeatures; "
        "set timeouts in clients, or use a gateway that supports them",
    )


def gateway_problem(state: ServiceState) -> str:
    """Say why the gateway cannot be used; empty if it can."""
    gateway = state.gateway
    if gateway.problem:
        return gateway.problem
    if gateway.known is None:
        return "InferenceGateway default has not answered yet"
    return "" if gateway.known.address else "InferenceGateway default has no address yet"


def _accepted_by_gateway(state: ServiceState, now: datetime) -> Verdict:
    applied, seen = state.applied, state.observed
    was_ready = is_true(state.conditions, "RoutingReady")
    if applied is None or seen is None or not seen.present or seen.generation < applied.generation:
        return (
            Verdict(TRUE, "RouteConfigured", truncated(state))
            if was_ready
            else Verdict(FALSE, "Configuring", "the gateway has not seen it")
        )
    if not seen.accepted:
        return Verdict(FALSE, "Configuring", seen.message or "the gateway has not accepted the route")
    if not seen.resolved:
        since = datetime.fromisoformat(state.unresolved_since) if state.unresolved_since else now
        if now - since >= UNRESOLVED_AFTER:
            return Verdict(FALSE, "BackendRefsUnresolved", seen.message or "the gateway cannot resolve a backend")
        return Verdict(TRUE, "RouteConfigured", truncated(state)) if was_ready else Verdict(FALSE, "Configuring", seen.message)
    return Verdict(TRUE, "RouteConfigured", truncated(state))


def truncated(state: ServiceState) -> str:
    """Say that not all endpoints are routed; empty if they are."""
    entries = state.selected.entries if state.selected else []
    ready = sum(entry.ready for entry in entries if not entry.standby)
    routed = len(state.applied.backends) if state.applied else 0
    return f"{routed} of {ready} endpoints routed" if 0 < routed < ready else ""


# --- status ---------------------------------------------------------------------------------------------------------------------------


def address(state: ServiceState, namespace: str, name: str) -> str:
    """Give the address of the service; empty without a gateway address, or if it selects nothing."""
    gateway = state.gateway.known.address if state.gateway.known and state.gateway.known.present else ""
    if not gateway or state.selected is None or not _selects_any(state.selected):
        return ""
    return f"http://{_in_brackets(gateway)}/{namespace}/{name}"


def _in_brackets(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host  # noqa: PLR2004 - a version of IP
    except ValueError:
        return host


def status_of(state: ServiceState, namespace: str, name: str) -> dict[str, Any]:
    """Show address, route, entries and routed endpoints."""
    status: dict[str, Any] = {}
    if found := address(state, namespace, name):
        status["address"] = found
    selected = state.selected.entries if state.selected and len(state.selected.entries) == len(entries_of(state)) else []
    weights = {share.endpoint: share.weight for share in state.applied.backends} if state.applied else {}
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
    ready, matched = sum(entry["ready"] for entry in entries), sum(entry["matched"] for entry in entries)
    shown = [f"{entry['name']}={entry['weight']}{' (standby)' if entry['standby'] else ''}" for entry in entries[:_ENTRIES_SHOWN]]
    more = [f"and {len(entries) - _ENTRIES_SHOWN} more"] if len(entries) > _ENTRIES_SHOWN else []
    return {"ready": f"{ready}/{matched}", "entries": " ".join([*shown, *more])}


def _routed(weights: dict[str, int], entries: Sequence[EntryEndpoints], titles: Sequence[str]) -> list[dict[str, Any]]:
    known = {endpoint.name: endpoint for entry in entries for endpoint in entry.endpoints}
    # An endpoint is in the list of one entry only.
    entry_of = {endpoint.name: title for entry, title in zip(entries, titles, strict=True) for endpoint in entry.endpoints}
    return [
        {"name": name, "weight": weight}
        | ({"url": known[name].url} if name in known else {})
        | ({"cluster": known[name].cluster} if name in known and known[name].cluster else {})
        | ({"entry": entry_of[name]} if name in entry_of else {})
        for name, weight in weights.items()
    ]
