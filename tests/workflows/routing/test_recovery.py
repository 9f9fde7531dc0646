"""A service after an outage of the control cluster, with a gateway that lags, and
without a route of its own name.

These tests run in virtual time with a simulated control cluster. Services start from a
state, as if minutes had passed.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from api_types import names
from api_types.digests import report_digest
from api_types.messages.delivery import EntityRef
from api_types.messages.gateway_work import (
    AppliedRoute,
    BackendShare,
    ObservedServiceRoute,
)
from api_types.messages.routing import (
    EntryEndpoints,
    GatewayChanged,
    Routed,
    SelectedEndpoint,
    ServiceEndpoints,
)
from api_types.messages.signals import EndpointDirectorySignals, ModelServiceSignals
from tests.simulation.clock import START
from tests.simulation.lives.virtual_plane import (
    VirtualPlane,
    on_a_virtual_loop,
    virtual_plane,
)
from tests.workflows.environment.harness import Json, eventually, message, reason
from tests.workflows.environment.simulated_control import (
    SimulatedControl,
    a_gateway,
    a_service,
    an_endpoint,
    selecting,
)
from workflows.entity import backoff
from workflows.entity.failures import Failure
from workflows.entity.registering.gateway_user import FollowedGateway
from workflows.model_service import decisions
from workflows.model_service import route as service_route
from workflows.model_service.state import ACCEPTED_WITHIN, ServiceState

TEAM = "ml-team"
Value = TypeVar("Value")
OWN = {"tier": "own"}
NOT_YET = "the gateway may not have loaded the Middleware yet"
RECOVERS = timedelta(seconds=4)
SERVICE = EntityRef[ModelServiceSignals](names.workflow_id("ModelService", TEAM, "s"))
DIRECTORY = names.endpoint_directory_id(TEAM)


def with_retries(**retries: Any) -> Json:
    service = a_service("s", selecting(OWN))
    return {**service, "spec": {**service["spec"], "retries": retries}}


# Retries after an outage


def has(why: str) -> Callable[[Json], bool]:
    return lambda seen: reason(seen, "RetriesReady") == why


@on_a_virtual_loop
async def test_the_route_names_a_new_middleware_when_the_gateway_has_recovered_from_an_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_route, "GATEWAY_RECOVERS", RECOVERS)
    control = SimulatedControl()
    async with virtual_plane(control) as plane:
        await plane.apply(a_gateway())
        await plane.apply(an_endpoint("own", **OWN))
        await plane.apply(a_service("s", selecting(OWN)))
        await plane.ready("ModelService", "s", TEAM)
        control.down = True
        await plane.until(
            "ModelService",
            "s",
            lambda seen: "does not answer" in message(seen, "RoutingReady"),
            TEAM,
        )
        await plane.apply(with_retries(attempts=2))
        await plane.until("ModelService", "s", has("Configuring"), TEAM)
        control.down = False
        seen = await plane.until(
            "ModelService", "s", has("MiddlewareUnavailable"), TEAM
        )
        assert NOT_YET in message(seen, "RetriesReady")
        assert (list(control.middlewares), control.named) == (["s"], set())
        await plane.until("ModelService", "s", has("MiddlewareApplied"), TEAM)
        assert control.named == {"s"}
        # A Middleware that the route names already stays named, whatever happens.
        control.down = True
        await plane.until(
            "ModelService",
            "s",
            lambda seen: "does not answer" in message(seen, "RoutingReady"),
            TEAM,
        )
        control.down = False
        applied = len(control.done)
        await eventually(
            lambda: _value(len(control.done) > applied),
            bool,
            what="the route is applied again",
        )
        await plane.ready("ModelService", "s", TEAM)
        assert has("MiddlewareApplied")(await plane.describe("ModelService", "s", TEAM))


@on_a_virtual_loop
async def test_the_same_holds_if_the_services_own_attempt_found_the_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_route, "GATEWAY_RECOVERS", RECOVERS)
    control = SimulatedControl(backends={"me-a": ""})
    state = a_state(
        spec={**with_retries(attempts=2)["spec"]},
        failure=Failure("ClusterUnreachable", "no answer"),
    )
    async with a_plane(control, state) as plane:
        seen = await plane.until(
            "ModelService", "s", has("MiddlewareUnavailable"), TEAM
        )
        assert NOT_YET in message(seen, "RetriesReady")
        await plane.until("ModelService", "s", has("MiddlewareApplied"), TEAM)


# Repairs


@on_a_virtual_loop
async def test_externally_deleted_objects_are_restored_at_once_after_a_long_rest() -> (
    None
):
    control = SimulatedControl(backends={"me-a": ""})
    lost: dict[str, Any] = {
        "applied": AppliedRoute(
            name="r",
            generation=1,
            digest="d",
            backends=[BackendShare(endpoint="a", weight=1)],
        ),
        "route_started": True,
        "observed": ObservedServiceRoute(present=False),
        "drift_repairs": 12,
        "drift_repaired_at": (START - 2 * backoff.DRIFT_MEMORY).isoformat(),
    }
    state = a_state(**lost)
    wanted = decisions.wanted_route(state, TEAM, "s")
    assert wanted
    async with a_plane(
        control, state.model_copy(update={"applied_digest": wanted.digest})
    ):
        await eventually(
            lambda: _value("apply route s [a]" in control.done),
            bool,
            within=30,
            what="the route",
        )


# Answers to the directory


def listing(version: int, *endpoints: str) -> ServiceEndpoints:
    found = [
        SelectedEndpoint(name=name, url="https://api.example.com", backend=f"me-{name}")
        for name in endpoints
    ]
    return ServiceEndpoints(
        uid="u",
        sequence=1,
        version=version,
        entries=[EntryEndpoints(matched=len(found), ready=len(found), endpoints=found)],
    )


def a_state(**fields: Any) -> ServiceState:
    """Return a service that has reported to the directory and has one listed endpoint."""
    known = GatewayChanged(
        uid="g",
        sequence=1,
        connected=True,
        connects=1,
        address="192.0.2.1",
        isolates_backends=True,
    )
    common = {
        "uid": "u",
        "generation": 1,
        "spec": a_service("s", selecting(OWN))["spec"],
        "selected": listing(1, "a"),
        "report_sequence": 1,
    }
    state = ServiceState(
        **{**common, **fields}, gateway=FollowedGateway(registered=True, known=known)
    )
    state.report_digest = report_digest(
        [entry.wire() for entry in decisions.selections(state)]
    )
    return state


@asynccontextmanager
async def a_plane(
    control: SimulatedControl, state: ServiceState
) -> AsyncIterator[VirtualPlane]:
    """Start a service from a state, and a directory that does nothing, so that signals
    stay in its history.
    """
    async with virtual_plane(control) as plane:
        plane.refuse("unserved")
        await plane.client.start_workflow(
            "EndpointDirectory", None, id=DIRECTORY, task_queue="unserved"
        )
        plane.start_continued(
            "ModelService",
            SERVICE.workflow_id,
            state.model_dump(mode="json", by_alias=True),
        )
        yield plane


def answers(plane: VirtualPlane) -> list[Routed]:
    """Return the answers to the directory about the route."""
    found = plane.signals(DIRECTORY, EndpointDirectorySignals.ROUTED.name)
    return [Routed.model_validate(each) for each in found]


@on_a_virtual_loop
async def test_a_lagging_gateway_gets_its_time_once_however_often_the_route_changes() -> (
    None
):
    control = SimulatedControl(follows=False, backends={"me-a": "", "me-b": ""})
    route = AppliedRoute(
        name="r",
        generation=1,
        digest="d",
        backends=[BackendShare(endpoint="a", weight=1)],
    )
    state = a_state(
        applied=route,
        applied_at=(START - ACCEPTED_WITHIN + timedelta(seconds=10)).isoformat(),
        applied_digest="of the list before",
        route_started=True,
        observed=ObservedServiceRoute(present=True, generation=1, digest="d"),
    )
    async with a_plane(control, state) as plane:
        await plane.handle("ModelService", "s", TEAM).signal(
            "endpoints_changed", listing(2, "b").wire()
        )
        await eventually(
            lambda: _value("apply route s [b]" in control.done),
            bool,
            what="the route with b alone",
        )
        assert answers(plane) == []
        found = await eventually(
            lambda: _value(answers(plane)), bool, within=40, what="an answer"
        )
        assert [(each.version, each.endpoints) for each in found] == [(2, ["b"])]


@on_a_virtual_loop
async def test_a_never_routed_endpoint_does_not_wait_for_a_service_without_its_own_route() -> (
    None
):
    control = SimulatedControl(taken={"s"})
    async with virtual_plane(control) as plane:
        await plane.apply(a_gateway())
        await plane.apply(a_service("s", selecting(OWN)))
        await plane.apply(an_endpoint("own", **OWN))
        await plane.until(
            "ModelService",
            "s",
            lambda seen: "NameConflict" in message(seen, "RoutingReady"),
            TEAM,
        )
        await plane.delete("ModelEndpoint", "own", TEAM)
        await plane.gone("ModelEndpoint", "own", TEAM)
        # Once the name is free, the service has its route.
        await plane.apply(an_endpoint("other", **OWN))
        control.taken.clear()
        await plane.handle("ModelService", "s", TEAM).signal(
            "retry_now", {"requestId": "again", "by": "test"}
        )
        await plane.ready("ModelService", "s", TEAM)
        assert control.done[-1] == "apply route s [other]"


@on_a_virtual_loop
async def test_a_routed_endpoint_is_held_when_another_owner_took_the_name() -> None:
    control = SimulatedControl(taken={"s"})
    route = AppliedRoute(
        name="r",
        generation=1,
        digest="d",
        backends=[BackendShare(endpoint="a", weight=1)],
    )
    state = a_state(
        applied=route,
        applied_digest="of the list before",
        route_started=True,
        selected=listing(3, "b"),
    )
    async with a_plane(control, state) as plane:
        found = await eventually(lambda: _value(answers(plane)), bool, what="an answer")
        assert [(each.version, each.endpoints) for each in found] == [(3, ["a"])]


LISTED = {
    "applied_digest": "of the list before",
    "route_started": True,
    "selected": listing(3, "b"),
}


@pytest.mark.parametrize("answered", ["in this run", "in the run before"])
@on_a_virtual_loop
async def test_the_endpoint_is_released_when_the_route_has_its_name_again(
    answered: str,
) -> None:
    control = SimulatedControl(taken={"s"}, backends={"me-a": "", "me-b": ""})
    had = [BackendShare(endpoint="a", weight=1), BackendShare(endpoint="b", weight=1)]
    known: dict[str, Any] = {
        "applied": AppliedRoute(name="r", generation=1, digest="d", backends=had),
        "observed": ObservedServiceRoute(
            present=True, generation=1, digest="digest-1", accepted=True
        ),
    }
    if answered == "in the run before":
        known |= {
            "answered": 3,
            "answered_unapplied": True,
            "failure": Failure("NameConflict", "it belongs to others"),
        }
    first = [(3, ["a", "b"])] if answered == "in this run" else []
    async with a_plane(control, a_state(**LISTED, **known)) as plane:

        async def given() -> list[tuple[int, list[str]]]:
            return [(each.version, each.endpoints) for each in answers(plane)]

        async def retried(request_id: str) -> None:
            service = plane.handle("ModelService", "s", TEAM)
            await service.signal("retry_now", {"requestId": request_id, "by": "test"})
            await plane.until(
                "ModelService",
                "s",
                lambda seen: request_id in seen["appliedRequestIds"],
                TEAM,
            )

        await plane.until(
            "ModelService",
            "s",
            lambda seen: "NameConflict" in message(seen, "RoutingReady"),
            TEAM,
        )
        await eventually(given, first.__eq__, what="the answer while the name is taken")
        # Another attempt that finds the name occupied adds no report.
        await retried("taken")
        control.taken.clear()
        await retried("free")
        await eventually(
            given,
            [*first, (3, ["b"])].__eq__,
            what="the answer of the route that was applied",
        )
        await retried("once more")
        assert await given() == [*first, (3, ["b"])]


async def _value(found: Value) -> Value:
    return found
