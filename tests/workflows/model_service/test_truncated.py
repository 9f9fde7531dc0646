"""The number of endpoints that a route cannot hold. Pure."""

import pytest

from api_types.limits import ROUTE_BACKENDS_MAX
from api_types.messages.gateway_work import AppliedRoute, BackendShare
from api_types.messages.routing import EntryEndpoints, ServiceEndpoints
from workflows.model_service.state import ServiceState
from workflows.model_service.verdicts import truncated


def a_service(routed: int, *entries: EntryEndpoints) -> ServiceState:
    shares = [BackendShare(endpoint=f"e{number}", weight=1) for number in range(routed)]
    return ServiceState(
        selected=ServiceEndpoints(
            uid="u", sequence=1, version=1, entries=list(entries)
        ),
        applied=AppliedRoute(name="r", generation=1, digest="d", backends=shares),
    )


def an_entry(ready: int, *, standby: bool = False) -> EntryEndpoints:
    return EntryEndpoints(matched=ready, ready=ready, standby=standby)


@pytest.mark.parametrize(
    ("service", "text"),
    [
        (a_service(1, an_entry(2)), ""),
        (a_service(2, an_entry(2), an_entry(20, standby=True)), ""),
        (a_service(16, an_entry(10), an_entry(ROUTE_BACKENDS_MAX - 10)), ""),
        (a_service(16, an_entry(10), an_entry(7)), "16 of 17 endpoints routed"),
    ],
    ids=["an older route", "a standby", "a full route", "too many for a route"],
)
def test_endpoints_are_left_out_only_if_a_route_cannot_hold_them(
    service: ServiceState, text: str
) -> None:
    assert truncated(service) == text
