"""Which endpoints the route of a ModelService has, and with which weights: pure, from what its entries select."""

from collections.abc import Sequence
from typing import NamedTuple

from activities.render.services.weights import Entry, backend_weights, routed_endpoints
from api_types.messages.gateway_work import RouteEntry
from api_types.messages.routing import SelectedEndpoint


class RoutedBackend(NamedTuple):
    """An endpoint of the route, and its weight."""

    endpoint: SelectedEndpoint
    weight: int


def plan_backends(entries: Sequence[RouteEntry]) -> list[RoutedBackend]:
    """Spread the share of each entry over its endpoints, in the order of the entries and by name."""
    listed = [sorted(entry.endpoints, key=lambda endpoint: endpoint.name) for entry in entries]
    counts = routed_endpoints([Entry(entry.weight, len(endpoints)) for entry, endpoints in zip(entries, listed, strict=True)])
    routed = [endpoints[:count] for endpoints, count in zip(listed, counts, strict=True)]
    weights = backend_weights([Entry(entry.weight, len(endpoints)) for entry, endpoints in zip(entries, routed, strict=True)])
    return [
        RoutedBackend(endpoint, weight)
        for endpoints, of_entry in zip(routed, weights, strict=True)
        for endpoint, weight in zip(endpoints, of_entry, strict=True)
    ]
