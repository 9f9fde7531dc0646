"""ModelServices, their endpoints and the gateway, from apply to delete.

Real workflows in virtual time, with a staged control cluster.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from api_types import names
from api_types.messages.entities import RetryNow
from api_types.messages.gateway_work import RouteRetries, RouteTimeouts
from api_types.messages.routing import TimeoutSupport
from tests.simulation.lives.virtual_plane import (
    VirtualPlane,
    on_a_virtual_loop,
    virtual_plane,
)
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_deployment,
    condition,
    eventually,
    message,
    reason,
)
from tests.workflows.environment.simulated_clusters import a_class, a_cluster
from tests.workflows.environment.simulated_control import (
    ADDRESS,
    SimulatedControl,
    a_gateway,
    a_service,
    an_endpoint,
    selecting,
)
from workflows.endpoint_directory.pace import LISTS_MAX

TEAM = "ml-team"
MISSING = "InferenceGateway default does not exist"
HELD = "the routes of services still have it"
QWEN = {"modelplane.ai/deployment": "qwen"}


@asynccontextmanager
async def a_plane(
    control: SimulatedControl, *, gateway: bool = True
) -> AsyncIterator[VirtualPlane]:
    async with virtual_plane(control) as plane:
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        if gateway:
            await plane.apply(a_gateway())
        yield plane


async def routed(plane: ControlPlane, name: str, *endpoints: str) -> Json:
    """Wait until the route of a service has these endpoints."""

    def holds(seen: Json) -> bool:
        names = [each["name"] for each in seen["status"].get("endpoints", ())]
        return names == sorted(endpoints) and condition(seen, "RoutingReady") == (
            "True" if endpoints else "False"
        )

    return await plane.until("ModelService", name, holds, TEAM)


@on_a_virtual_loop
async def test_a_service_routes_the_replicas_of_a_deployment_and_follows_them() -> None:
    control = SimulatedControl(settings={"drain_seconds": 1})
    async with a_plane(control) as plane:
        await plane.apply(a_deployment("qwen", TEAM, replicas=2))
        await plane.apply(a_service("qwen", selecting(QWEN)))
        seen = await plane.until(
            "ModelService",
            "qwen",
            lambda tree: len(tree["status"].get("endpoints", ())) == 2,
            TEAM,
        )
        seen = await plane.ready("ModelService", "qwen", TEAM)
        assert seen["status"]["address"] == f"http://{ADDRESS}/{TEAM}/qwen"
        assert message(seen, "EndpointsResolved") == "Matched 2 endpoint(s)"
        assert [each["weight"] for each in seen["status"]["endpoints"]] == [1, 1]
        assert {each["cluster"] for each in seen["status"]["endpoints"]} == {"eu"}

        await plane.scale("qwen", TEAM, 3)
        seen = await plane.until(
            "ModelService",
            "qwen",
            lambda tree: len(tree["status"].get("endpoints", ())) == 3,
            TEAM,
        )
        three = [each["name"] for each in seen["status"]["endpoints"]]

        await plane.scale("qwen", TEAM, 1)
        seen = await plane.until(
            "ModelService",
            "qwen",
            lambda tree: len(tree["status"].get("endpoints", ())) == 1,
            TEAM,
        )
        (stays,) = [each["name"] for each in seen["status"]["endpoints"]]
        for leaves in set(three) - {stays}:
            await plane.gone("ModelReplica", leaves, TEAM)
            # The order that fails no request: out of the route, and only then without a
            # backend.
            without = (
                max(
                    number
                    for number, line in enumerate(control.done)
                    if line.startswith("apply route") and leaves in line
                )
                + 1
            )
            assert any(
                line.startswith("apply route")
                for line in control.done[
                    without : control.done.index(f"remove backend {leaves}")
                ]
            )

        await plane.delete("ModelService", "qwen", TEAM)
        await plane.gone("ModelService", "qwen", TEAM)
        assert control.routes == {}
        await plane.delete("ModelDeployment", "qwen", TEAM)
        await plane.gone("ModelDeployment", "qwen", TEAM)
        assert control.backends == {}


@on_a_virtual_loop
async def test_a_hand_written_endpoint_is_routed_and_leaves_in_order() -> None:
    control = SimulatedControl()
    async with a_plane(control) as plane:
        await plane.apply(a_service("kimi", selecting({"tier": "external"})))
        seen = await plane.until(
            "ModelService",
            "kimi",
            lambda tree: reason(tree, "EndpointsResolved") == "NoEndpoints",
            TEAM,
        )
        assert message(seen, "RoutingReady") == (
            "no published endpoint matches; the gateway answers 503"
        )
        await plane.apply(an_endpoint("together", tier="external"))
        seen = await plane.ready("ModelEndpoint", "together", TEAM)
        assert seen["status"]["routing"]["backendName"].startswith("me-together-")
        await routed(plane, "kimi", "together")
        await plane.delete("ModelEndpoint", "together", TEAM)
        await plane.gone("ModelEndpoint", "together", TEAM)
        assert control.done[-2:] == ["apply route kimi []", "remove backend together"]
        seen = await plane.until(
            "ModelService",
            "kimi",
            lambda tree: reason(tree, "EndpointsResolved") == "NoEndpoints",
            TEAM,
        )
        assert condition(seen, "Ready") == "False"


@on_a_virtual_loop
async def test_an_unusable_url_has_no_objects() -> None:
    control = SimulatedControl()
    async with a_plane(control) as plane:
        await plane.apply(an_endpoint("inner", "http://localhost:8000", tier="a"))
        seen = await plane.until(
            "ModelEndpoint",
            "inner",
            lambda tree: reason(tree, "RoutingReady") == "InvalidURL",
            TEAM,
        )
        assert message(seen, "RoutingReady").startswith(
            "Invalid spec.url: http://localhost:8000: "
        )
        assert control.backends == {}
        await plane.apply(an_endpoint("inner", tier="a"))
        await plane.ready("ModelEndpoint", "inner", TEAM)
        await plane.apply(a_service("s", selecting({"tier": "a"})))
        await routed(plane, "s", "inner")
        await plane.apply(an_endpoint("inner", "http://localhost:8000", tier="a"))
        await plane.until(
            "ModelEndpoint",
            "inner",
            lambda tree: not tree["status"].get("routing"),
            TEAM,
        )
        assert control.done[-2:] == ["apply route s []", "remove backend inner"]


def _says(text: str, tree: Json) -> bool:
    return message(tree, "RoutingReady").startswith(text)


@on_a_virtual_loop
async def test_an_endpoint_in_a_denied_network_has_no_objects_whatever_its_spelling() -> (
    None
):
    control = SimulatedControl(denied=["10.96.0.0/16"])
    async with a_plane(control) as plane:
        await plane.apply(a_service("s", selecting({"tier": "a"})))
        await plane.apply(an_endpoint("inner", "http://10.97.0.1", tier="a"))
        await routed(plane, "s", "inner")
        for url in ("http://[::ffff:10.96.0.1]", "http://kubernetes.default.svc"):
            await plane.apply(an_endpoint("inner", url, tier="a"))
            said = f"Invalid spec.url: {url}: "
            seen = await plane.until(
                "ModelEndpoint", "inner", partial(_says, said), TEAM
            )
            assert reason(seen, "RoutingReady") == "InvalidURL"
            assert (
                "where endpoints may not be (controlCluster.endpointDenyCidrs)"
                in message(seen, "RoutingReady")
            )
        await plane.until(
            "ModelEndpoint",
            "inner",
            lambda tree: not tree["status"].get("routing"),
            TEAM,
        )
        assert control.done[-2:] == ["apply route s []", "remove backend inner"]
        assert control.backends == {}


@on_a_virtual_loop
async def test_priority_spills_over_to_the_next_entry_and_back() -> None:
    control = SimulatedControl()
    async with a_plane(control) as plane:
        await plane.apply(an_endpoint("own", tier="own"))
        await plane.apply(an_endpoint("provider", tier="provider"))
        await plane.apply(
            a_service(
                "s",
                selecting({"tier": "own"}),
                selecting({"tier": "provider"}, priority=1),
            )
        )
        seen = await routed(plane, "s", "own")
        assert [entry["standby"] for entry in seen["status"]["entries"]] == [
            False,
            True,
        ]
        await plane.delete("ModelEndpoint", "own", TEAM)
        await routed(plane, "s", "provider")
        await plane.gone("ModelEndpoint", "own", TEAM)
        await plane.apply(an_endpoint("own", tier="own"))
        await routed(plane, "s", "own")


@on_a_virtual_loop
async def test_below_the_floor_only_the_older_service_routes_an_endpoint() -> None:
    control = SimulatedControl()
    async with a_plane(control, gateway=False) as plane:
        await plane.apply(a_gateway(version="40.2.0"))
        await plane.apply(an_endpoint("own", tier="own"))
        await plane.apply(a_service("a", selecting({"tier": "own"})))
        await routed(plane, "a", "own")
        await plane.apply(a_service("b", selecting({"tier": "own"})))
        seen = await plane.until(
            "ModelService",
            "b",
            lambda tree: reason(tree, "RoutingReady") == "BackendShared",
            TEAM,
        )
        assert "ModelService a " in message(seen, "RoutingReady")
        await plane.delete("ModelService", "a", TEAM)
        await routed(plane, "b", "own")


@on_a_virtual_loop
async def test_services_and_endpoints_report_a_missing_control_cluster() -> None:
    control = SimulatedControl(configured=False)
    async with a_plane(control) as plane:
        await plane.apply(a_service("s", selecting({"tier": "own"})))
        await plane.apply(an_endpoint("own", tier="own"))
        text = "no control cluster is configured"
        seen = await plane.until(
            "InferenceGateway",
            "default",
            lambda tree: text in message(tree, "ControllerReady"),
        )
        assert reason(seen, "ControllerReady") == "Installing"
        await plane.until(
            "ModelService",
            "s",
            lambda tree: message(tree, "RoutingReady").startswith(text),
            TEAM,
        )
        seen = await plane.until(
            "ModelEndpoint",
            "own",
            lambda tree: message(tree, "RoutingReady").startswith(text),
            TEAM,
        )
        assert reason(seen, "RoutingReady") == "WaitingForBackend"
        await plane.delete("ModelEndpoint", "own", TEAM)
        await plane.gone("ModelEndpoint", "own", TEAM)
        await plane.delete("ModelService", "s", TEAM)
        await plane.gone("ModelService", "s", TEAM)


@on_a_virtual_loop
async def test_a_later_gateway_is_followed_and_cannot_be_deleted_before_its_services() -> (
    None
):
    control = SimulatedControl(address="")
    async with a_plane(control, gateway=False) as plane:
        await plane.apply(an_endpoint("own", tier="own"))
        await plane.apply(a_service("s", selecting({"tier": "own"})))
        await plane.until(
            "ModelService",
            "s",
            lambda tree: MISSING in message(tree, "RoutingReady"),
            TEAM,
        )
        await plane.apply(a_gateway())
        seen = await plane.until(
            "ModelService",
            "s",
            lambda tree: "has no address yet" in message(tree, "RoutingReady"),
            TEAM,
        )
        # The route is applied nevertheless.
        await eventually(
            lambda: _value("s" in control.routes), bool, what="the route of s"
        )
        assert "address" not in seen["status"]
        control.address = ADDRESS
        await plane.ready("ModelService", "s", TEAM)
        await plane.delete("InferenceGateway", "default")
        seen = await plane.until(
            "InferenceGateway",
            "default",
            lambda tree: reason(tree, "Deleting") == "BlockedByServices",
        )
        assert "ml-team/s" in message(seen, "Deleting")
        await plane.delete("ModelService", "s", TEAM)
        await plane.gone("InferenceGateway", "default")


@on_a_virtual_loop
async def test_routes_stay_while_the_control_cluster_is_unreachable_and_recover_after() -> (
    None
):
    control = SimulatedControl()
    async with a_plane(control) as plane:
        await plane.apply(an_endpoint("a", tier="own"))
        await plane.apply(a_service("s", selecting({"tier": "own"})))
        await routed(plane, "s", "a")
        control.down = True
        await plane.until(
            "ModelService",
            "s",
            lambda tree: "does not answer" in message(tree, "RoutingReady"),
            TEAM,
        )
        done = list(control.done)
        await plane.apply(an_endpoint("b", tier="own"))
        await plane.delete("ModelEndpoint", "a", TEAM)
        seen = await plane.until(
            "ModelEndpoint", "a", lambda tree: HELD in message(tree, "Deleting"), TEAM
        )
        assert control.done == done
        assert control.routes["s"].entries[0].endpoints[0].name == "a"
        assert seen["status"]["routing"]
        control.down = False
        await plane.gone("ModelEndpoint", "a", TEAM)
        await routed(plane, "s", "b")


@on_a_virtual_loop
async def test_a_few_simultaneous_changes_reach_a_service_without_a_timer() -> None:
    control = SimulatedControl()
    async with a_plane(control) as plane:
        await plane.apply(a_service("s", selecting({"tier": "own"})))
        await plane.until(
            "ModelService",
            "s",
            lambda tree: reason(tree, "EndpointsResolved") == "NoEndpoints",
            TEAM,
        )
        for endpoints in (("a",), ("a", "b")):
            await plane.apply(an_endpoint(endpoints[-1], tier="own"))
            await routed(plane, "s", *endpoints)
        lists = plane.signals(
            names.workflow_id("ModelService", TEAM, "s"), "endpoints_changed"
        )
        assert len(lists) in range(3, LISTS_MAX + 1)
        assert plane.timers_started(names.endpoint_directory_id(TEAM)) == 0


@on_a_virtual_loop
async def test_a_service_without_endpoints_takes_over_the_route_of_a_terminated_one() -> (
    None
):
    control = SimulatedControl()
    async with a_plane(control) as plane:
        await plane.apply(an_endpoint("own", tier="own"))
        await plane.apply(a_service("s", selecting({"tier": "own"})))
        await routed(plane, "s", "own")
        await plane.handle("ModelService", "s", TEAM).terminate()
        await plane.apply(a_service("s", selecting({"tier": "other"})))
        await routed(plane, "s")
        await plane.apply(a_service("s", selecting({"tier": "own"})))
        await routed(plane, "s", "own")
        assert control.done.count("remove route s") == 0


@on_a_virtual_loop
async def test_an_endpoint_is_held_until_the_gateway_accepted_the_route_without_it() -> (
    None
):
    control = SimulatedControl()
    async with a_plane(control) as plane:
        for name in ("a", "b"):
            await plane.apply(an_endpoint(name, tier="own"))
        await plane.apply(a_service("s", selecting({"tier": "own"})))
        await routed(plane, "s", "a", "b")
        await plane.ready("ModelService", "s", TEAM)
        control.follows = False
        await plane.delete("ModelEndpoint", "a", TEAM)
        await eventually(
            lambda: _value(control.done[-1] == "apply route s [b]"),
            bool,
            what="the route without a",
        )
        # It has the gateway's status, so no pending message could release the endpoint.
        await plane.until(
            "ModelService",
            "s",
            lambda tree: reason(tree, "RoutingReady") == "Configuring",
            TEAM,
        )
        await plane.until(
            "ModelEndpoint", "a", lambda tree: HELD in message(tree, "Deleting"), TEAM
        )
        assert "remove backend a" not in control.done
        control.follows = True
        await plane.gone("ModelEndpoint", "a", TEAM)
        assert control.done[-1] == "remove backend a"
        await routed(plane, "s", "b")


@on_a_virtual_loop
async def test_retries_are_a_middleware_that_is_created_restored_and_deleted_with_the_spec() -> (
    None
):
    control = SimulatedControl()

    def with_retries(**retries: Any) -> Json:
        service = a_service("s", selecting({"tier": "own"}))
        return {**service, "spec": {**service["spec"], **retries}}

    async with a_plane(control) as plane:
        await plane.apply(an_endpoint("own", tier="own"))
        await plane.apply(with_retries())
        seen = await routed(plane, "s", "own")
        assert (condition(seen, "RetriesReady"), control.middlewares) == ("", {})

        await plane.apply(with_retries(retries={"attempts": 2, "codes": [503]}))
        await plane.until(
            "ModelService",
            "s",
            lambda tree: reason(tree, "RetriesReady") == "MiddlewareApplied",
            TEAM,
        )
        assert control.middlewares == {
            "s": RouteRetries(attempts=2, codes=[503], backoff_milliseconds=100)
        }
        control.lose_middleware("s", plane.client)
        await eventually(
            lambda: _value("s" in control.middlewares), bool, what="the Middleware of s"
        )
        drift = await plane.until(
            "ModelService", "s", lambda tree: bool(events(tree, "DriftDetected")), TEAM
        )
        assert events(drift, "DriftDetected") == [
            "another client changed or deleted the Middleware; it is applied again"
        ]

        # The route exists without the unsupported part.
        control.unavailable = "the control cluster does not serve Middlewares"
        await plane.apply(with_retries(retries={"attempts": 3}))
        seen = await plane.until(
            "ModelService",
            "s",
            lambda tree: reason(tree, "RetriesReady") == "MiddlewareUnavailable",
            TEAM,
        )
        assert (condition(seen, "Ready"), condition(seen, "RetriesReady")) == (
            "True",
            "False",
        )
        assert (
            message(seen, "RetriesReady")
            == "requests are routed but not retried: the control cluster does not serve Middlewares"
        )
        assert len(events(seen, "MiddlewareUnavailable")) == 1
        control.unavailable = ""
        await plane.handle("ModelService", "s", TEAM).signal(
            "retry_now", RetryNow(request_id="again", by="test").wire()
        )
        await plane.until(
            "ModelService",
            "s",
            lambda tree: reason(tree, "RetriesReady") == "MiddlewareApplied",
            TEAM,
        )
        assert control.middlewares["s"].attempts == 3

        await plane.apply(with_retries())
        await eventually(
            lambda: _value(control.middlewares == {}), bool, what="no Middleware of s"
        )
        await plane.until(
            "ModelService",
            "s",
            lambda tree: condition(tree, "RetriesReady") == "",
            TEAM,
        )
        await eventually(
            lambda: _value(bool(control.routes["s"].middleware_left)),
            bool,
            what="the order that removed it",
        )
        await plane.apply(with_retries(retries={}))
        await eventually(
            lambda: _value("s" in control.middlewares), bool, what="the Middleware of s"
        )
        await plane.delete("ModelService", "s", TEAM)
        await plane.gone("ModelService", "s", TEAM)
        assert (control.routes, control.middlewares) == ({}, {})


@on_a_virtual_loop
async def test_timeouts_are_in_the_route_while_the_gateway_class_supports_them() -> (
    None
):
    control = SimulatedControl()
    both = TimeoutSupport(gateway_class="c", request=True, backend_request=True)

    async def said(*want: str) -> Json:
        def holds(tree: Json) -> bool:
            return (
                condition(tree, "TimeoutsReady"),
                reason(tree, "TimeoutsReady"),
            ) == want

        return await plane.until("ModelService", "s", holds, TEAM)

    async def ordered(timeouts: RouteTimeouts | None) -> None:
        await eventually(
            lambda: _value(control.routes["s"].timeouts == timeouts),
            bool,
            what="the timeouts of the route",
        )

    async with a_plane(control) as plane:
        await plane.apply(an_endpoint("own", tier="own"))
        service = a_service("s", selecting({"tier": "own"}))
        await plane.apply(service)
        seen = await routed(plane, "s", "own")
        assert (condition(seen, "TimeoutsReady"), control.routes["s"].timeouts) == (
            "",
            None,
        )
        applied = control.done.count("apply route s [own]")

        # A class that supports timeouts changes nothing for a service without any.
        control.timeouts = both
        await plane.apply(an_endpoint("other", tier="other"))
        later = a_service("later", selecting({"tier": "other"}))
        await plane.apply(
            {**later, "spec": {**later["spec"], "timeouts": {"request": "300s"}}}
        )
        await plane.until(
            "ModelService",
            "later",
            lambda tree: reason(tree, "TimeoutsReady") == "TimeoutsApplied",
            TEAM,
        )
        assert control.done.count("apply route s [own]") == applied
        wanted = {
            **service,
            "spec": {
                **service["spec"],
                "timeouts": {"request": "300s", "backendRequest": "60s"},
            },
        }
        await plane.apply(wanted)
        await said("True", "TimeoutsApplied")
        await ordered(RouteTimeouts(request="300s", backend_request="60s"))

        # A restarted watch has not read the class yet, and another fact becomes known
        # first.
        control.timeouts, control.address = None, "10.245.255.2"
        seen = await plane.until(
            "ModelService",
            "s",
            lambda tree: "10.245.255.2" in tree["status"].get("address", ""),
            TEAM,
        )
        assert (condition(seen, "TimeoutsReady"), control.routes["s"].timeouts) == (
            "True",
            RouteTimeouts(request="300s", backend_request="60s"),
        )

        control.timeouts = both.model_copy(update={"request": False})
        seen = await said("False", "TimeoutsUnsupported")
        assert condition(seen, "Ready") == "True"
        await ordered(RouteTimeouts(backend_request="60s"))
        # Nor does the service report then that the gateway's support is unknown.
        control.timeouts, control.address = None, ADDRESS
        seen = await plane.until(
            "ModelService",
            "s",
            lambda tree: ADDRESS in tree["status"].get("address", ""),
            TEAM,
        )
        assert (
            reason(seen, "TimeoutsReady"),
            len(events(seen, "TimeoutsUnsupported")),
        ) == ("TimeoutsUnsupported", 1)
        control.timeouts = both
        await said("True", "TimeoutsApplied")
        await ordered(RouteTimeouts(request="300s", backend_request="60s"))

        await plane.apply(service)
        await ordered(None)
        await plane.until(
            "ModelService",
            "s",
            lambda tree: condition(tree, "TimeoutsReady") == "",
            TEAM,
        )


def events(seen: Json, reason: str) -> list[str]:
    return [
        each["message"]
        for each in seen["status"].get("events", ())
        if each["reason"] == reason
    ]


async def _value(found: bool) -> bool:
    return found
