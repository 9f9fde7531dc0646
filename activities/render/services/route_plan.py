"""Select the endpoints of a ModelService's route and compute their weights."""

from collections.abc import Sequence
from typing import NamedTuple

from activities.render.services.weights import (
    WeightedEntry,
    backend_weights,
    routed_endpoints,
)
from api_types.messages.gateway_work import RouteEntry
from api_types.messages.routing import SelectedEndpoint


class RoutedBackend(NamedTuple):
    """An endpoint in a route, with the number of its entry."""

    endpoint: SelectedEndpoint
    weight: int
    entry: int = 0
    standby: bool = False


def plan_backends(entries: Sequence[RouteEntry]) -> list[RoutedBackend]:
    """Distribute the share of each entry over its endpoints.

    The result follows the order of the entries. Endpoints are sorted by name.
    """
    endpoints = [
        sorted(entry.endpoints, key=lambda endpoint: endpoint.name) for entry in entries
    ]
    counts = routed_endpoints(_entries(entries, endpoints))
    routed = [listed[:count] for listed, count in zip(endpoints, counts, strict=True)]
    weights = backend_weights(_entries(entries, routed))
    backends: list[RoutedBackend] = []
    for number, (entry, of_entry) in enumerate(zip(entries, routed, strict=True)):
        backends += [
            RoutedBackend(endpoint, weight, number, bool(entry.standby))
            for endpoint, weight in zip(of_entry, weights[number], strict=True)
        ]
    return backends


def _entries(
    entries: Sequence[RouteEntry], endpoints: Sequence[Sequence[SelectedEndpoint]]
) -> list[WeightedEntry]:
    return [
        WeightedEntry(entry.weight, len(of_entry))
        for entry, of_entry in zip(entries, endpoints, strict=True)
    ]
