"""The order of changes of a service's Middleware and its route."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.cluster_objects.ownership import ObjectOwner
from activities.observe.control import names_middleware
from activities.routing import middlewares
from activities.routing.middlewares import NOT_LOADED_YET
from api_types import labels
from api_types.errors import ServerError
from api_types.messages.gateway_work import (
    AppliedRoute,
    ApplyRoute,
    RemoveRoute,
    RouteEntry,
    RouteRetries,
)
from api_types.messages.routing import SelectedEndpoint
from api_types.names import service_route_name
from testbed.cluster.objects import GATEWAY_CLASS
from tests.activities.environment import operator
from tests.activities.environment.cluster_under_test import eventually
from tests.activities.routing.conftest import Control
from tests.activities.routing.test_watch import watching

pytestmark = pytest.mark.testbed

ENTRIES = [
    RouteEntry(
        endpoints=[SelectedEndpoint(name="a", url="http://10.0.0.1", backend="me-a")]
    )
]
RETRIES = RouteRetries(attempts=2, codes=[503])
FOR_EVER = 100_000.0
ENABLED = {labels.MIDDLEWARES: "enabled"}


@asynccontextmanager
async def a_gateway(
    api: ClusterApi, annotations: dict[str, str]
) -> AsyncIterator[None]:
    """Create a Gateway like one that others install."""
    await api.apply(
        {
            "apiVersion": kinds.GATEWAY.api_version,
            "kind": "Gateway",
            "metadata": {
                "name": labels.CONTROL_GATEWAY_NAME,
                "namespace": labels.SYSTEM_NAMESPACE,
                "annotations": annotations,
            },
            "spec": {
                "gatewayClassName": GATEWAY_CLASS,
                "listeners": [{"name": "web", "protocol": "HTTP", "port": 8000}],
            },
        }
    )
    try:
        yield
    finally:
        await api.delete(
            ObjectId(
                kinds.GATEWAY, labels.SYSTEM_NAMESPACE, labels.CONTROL_GATEWAY_NAME
            )
        )


def an_order(
    control: Control, retries: RouteRetries | None, *, left: bool | None = None
) -> ApplyRoute:
    return ApplyRoute(
        namespace=control.namespace,
        name="s",
        uid="u",
        entries=ENTRIES,
        retries=retries,
        middleware_left=left,
    )


async def applied(
    control: Control, order: ApplyRoute, load_seconds: float = 0
) -> AppliedRoute:
    found: AppliedRoute = await control.run(
        replace(control.activities, load_seconds=load_seconds).apply_service_route,
        order,
    )
    return found


async def stored(control: Control) -> tuple[Json | None, bool | None]:
    """Return the Middleware, and whether the route references one."""
    name = service_route_name(control.namespace, "s")
    route = await control.get(kinds.HTTP_ROUTE, name)
    return await control.get(
        kinds.MIDDLEWARE, name
    ), None if route is None else names_middleware(route)


@asynccontextmanager
async def waiting(control: Control, order: ApplyRoute) -> AsyncIterator[None]:
    """Apply a route to a gateway that never loads objects that are applied before it."""
    task = asyncio.create_task(applied(control, order, FOR_EVER))
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_middleware_exists_as_long_as_a_route_names_it(
    control: Control,
) -> None:
    async with operator.middlewares(control.cluster), a_gateway(control.api, ENABLED):
        before = await applied(control, an_order(control, None))
        assert (before.middleware, before.middleware_problem) == ("", "")

        async def has_come() -> bool:
            return (await stored(control))[0] is not None

        async def is_named_no_more() -> bool:
            return not (await stored(control))[1]

        async with waiting(control, an_order(control, RETRIES)):
            await eventually(has_come)
            assert (await stored(control))[1] is False
        # Its worker was lost. The objects of that attempt were loaded long ago.
        done = await applied(control, an_order(control, RETRIES), FOR_EVER)
        middleware, named = await stored(control)
        assert middleware
        assert (
            named,
            middleware["spec"]["retry"]["attempts"],
            bool(done.middleware),
        ) == (True, 3, True)
        assert middleware["metadata"]["annotations"][labels.OWNER_UID] == "u"
        changed = await applied(
            control, an_order(control, RouteRetries(attempts=1)), FOR_EVER
        )
        assert changed.middleware != done.middleware
        async with waiting(control, an_order(control, None, left=True)):
            await eventually(is_named_no_more)
            assert (await stored(control))[0] is not None
        await applied(control, an_order(control, None, left=True), FOR_EVER)
        assert await stored(control) == (None, False)

        await applied(control, an_order(control, RETRIES))
        await control.run(
            control.activities.remove_service_route,
            RemoveRoute(
                namespace=control.namespace, name="s", uid="u", middleware_left=True
            ),
        )
        assert await stored(control) == (None, None)


@pytest.mark.parametrize("has_route", [True, False])
async def test_the_first_route_without_retries_deletes_the_middleware_of_an_earlier_service(
    control: Control, *, has_route: bool
) -> None:
    async with operator.middlewares(control.cluster), a_gateway(control.api, ENABLED):
        await applied(control, an_order(control, RETRIES))
        if not has_route:
            name = service_route_name(control.namespace, "s")
            route = ObjectId(kinds.HTTP_ROUTE, control.namespace, name)
            await control.api.delete(route, propagation="Background")
        await applied(
            control, an_order(control, None).model_copy(update={"uid": "later"})
        )
        assert await stored(control) == (None, False)


async def test_so_it_does_when_the_worker_was_lost_before_it_was_deleted(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = an_order(control, None).model_copy(update={"uid": "later"})

    async def lost(*_: object) -> None:
        raise ServerError("lost")

    async with operator.middlewares(control.cluster), a_gateway(control.api, ENABLED):
        pauses = Pauses(control, monkeypatch)
        run = replace(control.activities, load_seconds=FOR_EVER).apply_service_route
        await control.run(run, an_order(control, RETRIES))
        with monkeypatch.context() as patch:
            patch.setattr(middlewares, "delete_middleware_taken_over", lost)
            with pytest.raises(ServerError):
                await control.run(run, later)
        pauses.take()
        await control.run(run, later, attempt=2)
        assert (await stored(control), pauses.take()) == (
            (None, False),
            [(True, False)],
        )
        await control.run(run, later, attempt=2)
        assert pauses.take() == [], "the gateway has nothing to forget"


class Pauses:
    """Record the state at each pause for the gateway: the Middleware and the reference.

    The pauses take no time.
    """

    def __init__(self, control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen, sleep = list[tuple[bool, bool | None]](), asyncio.sleep

        async def note(seconds: float) -> None:
            if seconds != FOR_EVER:
                await sleep(seconds)
                return
            middleware, named = await stored(control)
            self.seen.append((middleware is not None, named))

        monkeypatch.setattr(asyncio, "sleep", note)

    def take(self) -> list[tuple[bool, bool | None]]:
        """Return the records since the last call."""
        found, self.seen = self.seen, []
        return found


async def test_a_second_attempt_waits_for_the_gateway_to_load_the_first_ones_changes(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with operator.middlewares(control.cluster), a_gateway(control.api, ENABLED):
        pauses = Pauses(control, monkeypatch)
        run = replace(control.activities, load_seconds=FOR_EVER).apply_service_route
        await control.run(run, an_order(control, None))
        assert pauses.take() == []
        # An attempt has applied the Middleware, and its worker was lost.
        await control.run(run, an_order(control, RETRIES))
        await control.run(run, an_order(control, None))
        pauses.take()
        await control.run(run, an_order(control, RETRIES), attempt=2)
        assert pauses.take() == [(True, False)]
        assert (await stored(control))[1] is True
        # The same at the point where the Middleware is deleted.
        await control.run(run, an_order(control, None))
        await control.run(run, an_order(control, None, left=True), attempt=2)
        assert pauses.take() == [(True, False)]
        assert await stored(control) == (None, False)


async def test_while_the_gateway_recovers_a_route_names_no_middleware_that_it_did_not_name_before(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with operator.middlewares(control.cluster), a_gateway(control.api, ENABLED):
        pauses = Pauses(control, monkeypatch)
        recovering = an_order(control, RETRIES).model_copy(
            update={"gateway_recovers": True}
        )
        for attempt in (1, 2):
            run = replace(control.activities, load_seconds=FOR_EVER).apply_service_route
            done = await control.run(run, recovering, attempt=attempt)
            assert (done.middleware, done.middleware_problem) == (
                "",
                NOT_LOADED_YET.problem,
            )
            middleware, named = await stored(control)
            assert (bool(middleware), named, pauses.take()) == (True, False, [])
        named_now = await control.run(run, an_order(control, RETRIES))
        assert (
            bool(named_now.middleware),
            (await stored(control))[1],
            pauses.take(),
        ) == (True, True, [])
        assert (await control.run(run, recovering)).middleware == named_now.middleware
        assert (await stored(control))[1] is True


@pytest.mark.parametrize(
    ("annotations", "lacks", "said"),
    [
        pytest.param(
            None,
            (),
            "Gateway modelplane-system/modelplane does not exist",
            id="no gateway",
        ),
        pytest.param(
            {},
            (),
            "enable the provider kubernetesCRD of Traefik, then `kubectl annotate gateway",
            id="a gateway that says nothing",
        ),
        pytest.param(
            ENABLED,
            None,
            "does not serve traefik.io/v1alpha1/Middleware: install the CRDs of Traefik",
            id="no CRD",
        ),
        pytest.param(
            ENABLED,
            ("status", "retryNonIdempotentMethod"),
            "the CRDs of Traefik are older than 3.7",
            id="the CRD of an older Traefik",
        ),
    ],
)
async def test_without_middlewares_the_route_names_none_and_a_reason_is_reported(
    control: Control,
    annotations: dict[str, str] | None,
    lacks: tuple[str, ...] | None,
    said: str,
) -> None:
    async with AsyncExitStack() as there:
        if lacks is not None:
            await there.enter_async_context(
                operator.middlewares(control.cluster, without=lacks)
            )
        if annotations is not None:
            await there.enter_async_context(a_gateway(control.api, annotations))
        done = await applied(control, an_order(control, RETRIES), FOR_EVER)
        assert said in done.middleware_problem
        assert (done.middleware, await stored(control)) == ("", (None, False))
        assert [share.endpoint for share in done.backends] == ["a"]


async def test_a_service_is_notified_when_its_middleware_is_changed_or_deleted(
    control: Control,
) -> None:
    owner = ObjectOwner("ModelService", control.namespace, "s", "u")
    async with operator.middlewares(control.cluster), a_gateway(control.api, ENABLED):
        done = await applied(control, an_order(control, RETRIES))
        async with watching(control.api) as watched:

            async def until(digest: str) -> None:
                await watched.until(
                    owner,
                    lambda each: bool(
                        each.route
                        and each.route.present
                        and each.route.middleware == digest
                    ),
                )

            await until(done.middleware)
            name = service_route_name(control.namespace, "s")
            await control.api.delete(
                ObjectId(kinds.MIDDLEWARE, control.namespace, name)
            )
            await until("")
            again = await applied(control, an_order(control, RETRIES))
            assert again.middleware == done.middleware
            await until(done.middleware)
