"""The objects of services for Envoy Gateway, on a real API server without its schemas."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ObjectId
from activities.cluster_objects.ownership import ObjectOwner
from activities.routing.envoy_routes import PARTS
from api_types import labels
from api_types.errors import NameConflict
from api_types.messages.gateway_work import (
    AppliedRoute,
    ApplyRoute,
    RemoveRoute,
    RouteEntry,
)
from api_types.messages.routing import SelectedEndpoint
from api_types.names import service_route_name
from tests.activities.environment import operator
from tests.activities.routing.conftest import Control
from tests.activities.routing.test_watch import watching

pytestmark = pytest.mark.testbed

SERVICE = "s"


@pytest_asyncio.fixture
async def envoy(control: Control) -> AsyncIterator[Control]:
    async with operator.envoy_kinds(control.cluster):
        yield control


def entry(name: str, *, standby: bool | None = None) -> RouteEntry:
    endpoint = SelectedEndpoint(
        name=name, url=f"http://10.0.0.1/{name}/", backend=f"me-{name}", cluster="eu-1"
    )
    return RouteEntry(endpoints=[endpoint], standby=standby)


async def applied(
    control: Control, *entries: RouteEntry, uid: str = "u"
) -> AppliedRoute:
    order = ApplyRoute(
        namespace=control.namespace,
        name=SERVICE,
        uid=uid,
        entries=list(entries),
        gateway="Envoy",
    )
    found: AppliedRoute = await control.run(
        control.activities.apply_service_route, order
    )
    return found


async def parts(control: Control) -> dict[str, list[str]]:
    """Return the names of the parts by kind, without the route."""
    prefix = service_route_name(control.namespace, SERVICE)
    return {
        kind.kind: [each.removeprefix(prefix) for each in await control.names(kind)]
        for kind in PARTS
    }


async def test_a_service_has_a_backend_for_each_entry_and_no_more(
    envoy: Control,
) -> None:
    await applied(envoy, entry("a"), entry("b"), entry("c", standby=True))
    assert await parts(envoy) == {
        "BackendTrafficPolicy": [""],
        "HTTPRouteFilter": [""],
        "Backend": ["-0", "-1", "-2"],
    }
    await applied(envoy, entry("a"), RouteEntry(), entry("c", standby=True))
    assert (await parts(envoy))["Backend"] == ["-0", "-2"]
    await applied(envoy, RouteEntry())
    assert await parts(envoy) == {
        "BackendTrafficPolicy": [],
        "HTTPRouteFilter": [""],
        "Backend": [],
    }


async def test_objects_of_another_service_stay_and_are_not_changed(
    envoy: Control,
) -> None:
    await applied(envoy, entry("a"))
    name = service_route_name(envoy.namespace, SERVICE)
    policy = await envoy.get(kinds.BACKEND_TRAFFIC_POLICY, name)
    assert policy
    metadata = {key: policy["metadata"][key] for key in ("name", "namespace")}
    metadata["annotations"] = {labels.OWNER_NAME: "another"}
    await envoy.api.apply(
        {
            "apiVersion": policy["apiVersion"],
            "kind": policy["kind"],
            "metadata": metadata,
        }
    )
    with pytest.raises(NameConflict, match=r"BackendTrafficPolicy/.* exists already"):
        await applied(envoy, entry("a"))


async def test_the_watch_reports_a_change_by_another_client(envoy: Control) -> None:
    owner = ObjectOwner("ModelService", envoy.namespace, SERVICE, "u")
    done = await applied(envoy, entry("a"), entry("b"))
    assert done.middleware
    async with watching(envoy.api, backend="Envoy") as watched:
        await watched.until(
            owner,
            lambda seen: bool(seen.route and seen.route.middleware == done.middleware),
        )
        name = service_route_name(envoy.namespace, SERVICE)
        gone = ObjectId(kinds.BACKEND, envoy.namespace, f"{name}-1")
        await envoy.api.delete(gone, propagation="Background")
        await watched.until(
            owner,
            lambda seen: bool(
                seen.route and seen.route.middleware not in (None, done.middleware)
            ),
        )


async def test_a_service_without_a_route_removes_the_parts_of_a_terminated_one(
    envoy: Control,
) -> None:
    """It may not know yet which gateway its predecessor was behind."""
    await applied(envoy, entry("a"), uid="terminated")
    await envoy.run(
        envoy.activities.remove_service_route,
        RemoveRoute(
            namespace=envoy.namespace,
            name=SERVICE,
            uid="u",
            of_predecessors=True,
            middleware_left=True,
        ),
    )
    assert set(map(tuple, (await parts(envoy)).values())) == {()}
    assert await envoy.names(kinds.HTTP_ROUTE) == []


async def test_a_removed_service_leaves_nothing(envoy: Control) -> None:
    await applied(envoy, entry("a"), uid="terminated")
    await applied(envoy, entry("a"), entry("b"))
    await envoy.run(
        envoy.activities.remove_service_route,
        RemoveRoute(namespace=envoy.namespace, name=SERVICE, uid="u", gateway="Envoy"),
    )
    assert set(map(tuple, (await parts(envoy)).values())) == {()}
    assert await envoy.names(kinds.HTTP_ROUTE) == []
