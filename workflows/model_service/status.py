"""The status of a ModelService: address, route, entries and routed endpoints. Pure."""

import ipaddress
from collections.abc import Sequence
from typing import Any

from api_types.messages.routing import EntryEndpoints
from workflows.model_service.decisions import SHOWN_MAX, entries_of
from workflows.model_service.state import ServiceState


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
            "name": _title(entry),
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


def _title(entry: dict[str, Any]) -> str:
    """Return the name of an entry, or the labels that it selects."""
    labels = entry["selector"].get("matchLabels") or {}
    return (
        entry.get("name")
        or ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        or "all"
    )


def _summary(entries: Sequence[dict[str, Any]]) -> dict[str, str]:
    ready, matched = (
        sum(entry["ready"] for entry in entries),
        sum(entry["matched"] for entry in entries),
    )
    shown = [
        f"{entry['name']}={entry['weight']}{' (standby)' if entry['standby'] else ''}"
        for entry in entries[:SHOWN_MAX]
    ]
    more = [f"and {len(entries) - SHOWN_MAX} more"] if len(entries) > SHOWN_MAX else []
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
