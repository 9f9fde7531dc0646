"""The status of a service's retries, and when its Middleware is applied again.

These tests are pure.
"""

import pytest

from api_types.messages.gateway_work import (
    AppliedRoute,
    ObservedServiceRoute,
    RouteRetries,
)
from workflows.model_service import decisions, verdicts
from workflows.model_service.state import ServiceState

ENTRIES: list[dict[str, object]] = [{"selector": {"matchLabels": {}}}]


def a_state(
    retries: object, *, middleware: str = "", problem: str = "", seen: str | None = None
) -> ServiceState:
    spec = {"endpoints": ENTRIES, **({} if retries is None else {"retries": retries})}
    applied = AppliedRoute(
        name="r",
        generation=1,
        digest="d",
        middleware=middleware,
        middleware_problem=problem,
    )
    observed = ObservedServiceRoute(
        present=True, generation=1, digest="d", middleware=seen
    )
    return ServiceState(
        uid="u", spec=spec, applied=applied, applied_digest="w", observed=observed
    )


@pytest.mark.parametrize(
    ("middleware", "seen", "drifted"),
    [
        pytest.param("m", "m", False, id="as it was applied"),
        pytest.param("m", "", True, id="deleted"),
        pytest.param("m", "other", True, id="changed"),
        pytest.param("m", None, False, id="not known"),
        pytest.param("", "m", False, id="none was applied"),
    ],
)
def test_an_externally_changed_or_deleted_middleware_is_drift(
    middleware: str, seen: str | None, drifted: bool
) -> None:
    state = a_state({}, middleware=middleware, seen=seen)
    assert (decisions.drifted(state), decisions.middleware_drifted(state)) == (
        drifted,
        drifted,
    )


@pytest.mark.parametrize(
    ("state", "want"),
    [
        pytest.param(a_state(None), None, id="not requested"),
        pytest.param(a_state({}), ("Unknown", "Configuring"), id="not applied yet"),
        pytest.param(
            a_state({}, middleware="m"), ("True", "MiddlewareApplied"), id="applied"
        ),
        pytest.param(
            a_state({}, problem="why"),
            ("False", "MiddlewareUnavailable"),
            id="cannot be applied",
        ),
    ],
)
def test_retries_are_ready_when_the_route_names_them(
    state: ServiceState, want: tuple[str, str] | None
) -> None:
    verdict = verdicts.retries_ready(state)
    assert (verdict and verdict[:2]) == want


def test_the_default_is_one_attempt_without_codes() -> None:
    assert decisions.retries_of(a_state({})) == RouteRetries(
        attempts=1, codes=[], backoff_milliseconds=100
    )
