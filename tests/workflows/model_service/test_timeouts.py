"""The timeouts of a service's route, and their status.

Pure, and with the workflow outside Temporal.
"""

from typing import Any

import pytest

from api_types.messages.gateway_work import AppliedRoute, RouteTimeouts
from api_types.messages.routing import (
    EntryEndpoints,
    GatewayChanged,
    ServiceEndpoints,
    TimeoutSupport,
)
from workflows.entity.registering.gateway_user import FollowedGateway
from workflows.model_service import decisions, verdicts
from workflows.model_service.state import ServiceState

BOTH = {"request": "300s", "backendRequest": "60s"}
NOTHING_KNOWN = TimeoutSupport(gateway_class="c", problem="why")


def supports(*fields: str) -> TimeoutSupport:
    return TimeoutSupport(
        gateway_class="c",
        request="request" in fields,
        backend_request="backendRequest" in fields,
    )


def a_state(
    timeouts: Any, support: TimeoutSupport | None, has: Any = None
) -> ServiceState:
    spec = {
        "endpoints": [{"selector": {"matchLabels": {}}}],
        **({} if timeouts is None else {"timeouts": timeouts}),
    }
    known = GatewayChanged(
        uid="g", sequence=1, connected=True, address="10.0.0.1", timeouts=support
    )
    applied = AppliedRoute(
        name="r", timeouts=None if has is None else RouteTimeouts.model_validate(has)
    )
    selected = ServiceEndpoints(
        uid="u", sequence=1, version=1, entries=[EntryEndpoints(matched=1)]
    )
    return ServiceState(
        uid="u",
        spec=spec,
        gateway=FollowedGateway(registered=True, known=known),
        applied=applied,
        selected=selected,
        report_sequence=1,
    )


def ordered(state: ServiceState) -> Any:
    """Return the timeouts of the wanted route as JSON."""
    wanted = decisions.wanted_route(state, "ml", "s")
    assert wanted
    assert wanted.route
    return wanted.route.wire().get("timeouts")


@pytest.mark.parametrize(
    ("state", "want"),
    [
        pytest.param(
            a_state(None, supports("request", "backendRequest")),
            None,
            id="not requested",
        ),
        pytest.param(
            a_state(BOTH, supports("request", "backendRequest")),
            BOTH,
            id="both are supported",
        ),
        pytest.param(
            a_state(BOTH, supports("request")),
            {"request": "300s"},
            id="one is supported",
        ),
        pytest.param(
            a_state({"backendRequest": "60s"}, supports("request")),
            None,
            id="the other one is supported",
        ),
        pytest.param(
            a_state(BOTH, supports(), BOTH), None, id="none is supported any more"
        ),
        pytest.param(a_state(BOTH, None), None, id="not known yet"),
        pytest.param(
            a_state(BOTH, None, {"request": "1s"}),
            {"request": "300s"},
            id="not known, and the route has one",
        ),
        pytest.param(
            a_state(BOTH, NOTHING_KNOWN, BOTH), BOTH, id="cannot be read any more"
        ),
        pytest.param(
            a_state(None, NOTHING_KNOWN, BOTH), None, id="no longer requested"
        ),
    ],
)
def test_a_route_has_the_timeouts_that_the_gateway_class_supports(
    state: ServiceState, want: Any
) -> None:
    assert ordered(state) == want


def test_a_service_without_timeouts_is_not_applied_again_when_the_class_reports_support() -> (
    None
):
    digests = {
        wanted.digest
        for support in (None, supports(), supports("request"))
        if (wanted := decisions.wanted_route(a_state(None, support), "ml", "s"))
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("state", "want"),
    [
        pytest.param(a_state(None, supports()), None, id="not requested"),
        pytest.param(
            a_state(BOTH, supports("request", "backendRequest"), BOTH),
            ("True", "TimeoutsApplied"),
            id="applied",
        ),
        pytest.param(
            a_state(BOTH, NOTHING_KNOWN, BOTH),
            ("True", "TimeoutsApplied"),
            id="applied, and cannot be read any more",
        ),
        pytest.param(
            a_state(BOTH, supports("request", "backendRequest")),
            ("Unknown", "Configuring"),
            id="not applied yet",
        ),
        pytest.param(
            a_state(BOTH, None), ("Unknown", "Configuring"), id="not known yet"
        ),
        pytest.param(
            a_state(BOTH, NOTHING_KNOWN),
            ("False", "SupportUnknown"),
            id="cannot be read",
        ),
        pytest.param(
            a_state(BOTH, supports("request"), {"request": "300s"}),
            ("False", "TimeoutsUnsupported"),
            id="half of it",
        ),
        pytest.param(
            a_state(BOTH, supports()), ("False", "TimeoutsUnsupported"), id="none of it"
        ),
    ],
)
def test_timeouts_are_ready_when_the_route_has_all(
    state: ServiceState, want: tuple[str, str] | None
) -> None:
    verdict = verdicts.timeouts_ready(state)
    assert (verdict and verdict[:2]) == want


UNSUPPORTED = (
    "in status.supportedFeatures; set timeouts in clients, or use a gateway that "
    "supports them"
)
ALL, HALF = (
    "HTTPRouteRequestTimeout and HTTPRouteBackendTimeout",
    "HTTPRouteBackendTimeout",
)


@pytest.mark.parametrize(
    ("support", "want"),
    [
        (
            supports(),
            (
                "requests are routed without request and backendRequest: GatewayClass c "
                f"does not list {ALL} {UNSUPPORTED}"
            ),
        ),
        (
            supports("request"),
            (
                "requests are routed without backendRequest: GatewayClass c does not "
                f"list {HALF} {UNSUPPORTED}"
            ),
        ),
        (
            NOTHING_KNOWN,
            "requests are routed, but the timeouts that GatewayClass c supports are unknown: why",
        ),
    ],
)
def test_the_condition_names_the_missing_timeouts_and_a_remedy(
    support: TimeoutSupport, want: str
) -> None:
    verdict = verdicts.timeouts_ready(a_state(BOTH, support))
    assert verdict
    assert verdict.message == want
