"""Count the ready endpoints of a Service per slice."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from api_types.labels import SERVICE_NAME


class EndpointsSeen(NamedTuple):
    """The kept record of one EndpointSlice: its Service and its ready endpoints."""

    namespace: str
    service: str
    ready: int


def read_endpoints(item: Mapping[str, Any]) -> EndpointsSeen:
    """Reduce an EndpointSlice."""
    metadata = item["metadata"]
    # An absent condition means ready.
    ready = sum(
        (endpoint.get("conditions") or {}).get("ready") is not False
        for endpoint in item.get("endpoints") or ()
    )
    return EndpointsSeen(
        metadata.get("namespace", ""),
        (metadata.get("labels") or {}).get(SERVICE_NAME, ""),
        ready,
    )
