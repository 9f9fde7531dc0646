"""The role for the control cluster matches the worker's requests there.

On a real API server, a user with only this role can send all of them.
"""

import secrets
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from structlog.testing import capture_logs

from activities.cluster_objects import kinds
from activities.cluster_objects.access_review import ResourceRight
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.permissions import rights_of
from activities.routing.activities import RoutingActivities
from activities.routing.control_cluster import (
    ROLES_FILE,
    USED,
    USED_BY_SOME,
    ControlCluster,
)
from activities.routing.denied_networks import RANGES
from api_types import labels
from api_types.errors import PermissionDenied
from api_types.messages.gateway_work import (
    AppliedRoute,
    ApplyBackend,
    ApplyRoute,
    RemoveBackend,
    RemoveRoute,
    RouteEntry,
    RouteRetries,
    WatchGateway,
)
from api_types.messages.routing import SelectedEndpoint
from api_types.names import service_route_name
from api_types.sections.clusters import ControlClusterSettings
from testbed.cluster.control_plane import SERVICE_CIDR
from testbed.running import Running
from tests.activities.environment import operator
from tests.activities.environment.asking import asked_by
from tests.activities.environment.cluster_under_test import (
    ClusterUnderTest,
    cluster_from,
    eventually,
)
from tests.activities.routing.test_middlewares import ENABLED, a_gateway
from tests.activities.routing.test_watch import GATEWAY, watching

DOCUMENTS: list[Json] = list(
    yaml.safe_load_all((Path(__file__).parents[2] / ROLES_FILE).read_text())
)
(ROLE,) = [item for item in DOCUMENTS if item["kind"] == "ClusterRole"]
PLURALS = {
    kinds.HTTP_ROUTE: "httproutes",
    kinds.SERVICE: "services",
    kinds.ENDPOINT_SLICE: "endpointslices",
    kinds.GATEWAY: "gateways",
    kinds.NAMESPACE: "namespaces",
    kinds.MIDDLEWARE: "middlewares",
    kinds.GATEWAY_CLASS: "gatewayclasses",
    kinds.BACKEND: "backends",
    kinds.BACKEND_TRAFFIC_POLICY: "backendtrafficpolicies",
    kinds.HTTP_ROUTE_FILTER: "httproutefilters",
    kinds.NODE: "nodes",
    kinds.SERVICE_CIDR: "servicecidrs",
}


def test_the_role_has_exactly_the_checked_rights() -> None:
    written = [right for rule in ROLE["rules"] for right in rights_of(rule)]
    used = [*USED, *USED_BY_SOME, *((kind, ("list",)) for kind in RANGES)]
    assert sorted(written) == sorted(
        ResourceRight(verb, PLURALS[kind], kind.group)
        for kind, verbs in used
        for verb in verbs
    )


@pytest_asyncio.fixture
async def limited(
    testbed: Running, tmp_path: Path
) -> AsyncIterator[tuple[ClusterUnderTest, ControlCluster]]:
    """A cluster with the file applied, seen by its administrator and by the
    ServiceAccount.
    """
    kubeconfig = testbed.clusters["prod-eu"].kubeconfig.read_text()
    admin = await cluster_from("prod-eu", kubeconfig, tmp_path / "admin")
    api = await admin.api()
    made = [ObjectId.of(await api.apply(item)) for item in DOCUMENTS]
    token = await operator.token_of(admin, labels.SYSTEM_NAMESPACE, "modelplane")
    user = await cluster_from(
        "control", operator.with_token(kubeconfig, token), tmp_path / "user"
    )
    control = ControlCluster(
        user.pool, ControlClusterSettings(name="control-kubeconfig")
    )
    yield admin, control
    for target in reversed(made):
        await api.delete(target, propagation="Background")
    for each in (admin, user):
        await each.pool.close()


@pytest.mark.testbed
async def test_the_service_account_of_the_file_has_all_rights_of_the_worker(
    limited: tuple[ClusterUnderTest, ControlCluster],
) -> None:
    admin, control = limited
    # An informer of the API server passes a changed role to its authorizer.
    await eventually(partial(_passes, control))
    routing, namespace = RoutingActivities(control), f"t-{secrets.token_hex(4)}"
    endpoint = ApplyBackend(
        owner="ModelEndpoint",
        namespace=namespace,
        name="a",
        uid="u",
        url="http://10.0.0.1",
    )
    of_endpoint, of_service = (
        asked_by(f"modelendpoint/{namespace}/a"),
        asked_by(f"modelservice/{namespace}/s"),
    )
    applied = await of_endpoint.run(routing.apply_endpoint_backend, endpoint)
    entry = RouteEntry(
        endpoints=[
            SelectedEndpoint(name="a", url=endpoint.url, backend=applied.backend)
        ]
    )
    order = ApplyRoute(
        namespace=namespace, name="s", uid="u", entries=[entry], retries=RouteRetries()
    )
    async with operator.middlewares(admin), a_gateway(await admin.api(), ENABLED):
        await (await control.api()).resources(refresh=True)
        with_retries = await of_service.run(routing.apply_service_route, order)
        assert (bool(with_retries.middleware), with_retries.middleware_problem) == (
            True,
            "",
        )
        await _is_watched(await control.api(), kinds.MIDDLEWARE)
        await of_service.run(
            routing.apply_service_route,
            order.model_copy(update={"retries": None, "middleware_left": True}),
        )
    facts = await asked_by("inferencegateway/default").run(
        routing.connect_gateway, WatchGateway(uid="g")
    )
    assert SERVICE_CIDR in (facts.denied_cidrs or ())
    user: ClusterApi = await control.api()
    for kind in (
        kinds.HTTP_ROUTE,
        kinds.SERVICE,
        kinds.ENDPOINT_SLICE,
        kinds.GATEWAY,
        kinds.GATEWAY_CLASS,
    ):
        await _is_watched(user, kind)
    await of_service.run(
        routing.remove_service_route,
        RemoveRoute(namespace=namespace, name="s", uid="u"),
    )
    await of_endpoint.run(
        routing.remove_endpoint_backend,
        RemoveBackend(owner="ModelEndpoint", namespace=namespace, name="a", uid="u"),
    )
    await (await admin.api()).delete(
        ObjectId(kinds.NAMESPACE, "", namespace), propagation="Background"
    )


@pytest.mark.testbed
async def test_missing_rights_of_the_role_are_named(
    limited: tuple[ClusterUnderTest, ControlCluster],
) -> None:
    admin, control = limited
    api = await admin.api()
    rules = [rule for rule in ROLE["rules"] if rule["resources"] != ["services"]]
    await eventually(partial(_passes, control))
    await api.apply({**ROLE, "rules": rules})

    async def refusal() -> str:
        try:
            await control.check()
        except PermissionDenied as error:
            return error.message
        return ""

    said = await eventually(refusal)
    assert (
        "in all namespaces: get,list,watch,create,patch,delete services; bind it "
        f"to the ClusterRole of {ROLES_FILE}"
    ) in said


@pytest.mark.testbed
async def test_without_the_right_to_write_middlewares_routes_lack_retries_only(
    limited: tuple[ClusterUnderTest, ControlCluster],
) -> None:
    admin, control = limited
    api, namespace = await admin.api(), f"t-{secrets.token_hex(4)}"
    await api.apply(
        {
            **ROLE,
            "rules": [
                rule for rule in ROLE["rules"] if rule["resources"] != ["middlewares"]
            ],
        }
    )
    await eventually(partial(_passes, control))
    entries = [
        RouteEntry(
            endpoints=[
                SelectedEndpoint(name="a", url="http://10.0.0.1", backend="me-a")
            ]
        )
    ]
    order = ApplyRoute(
        namespace=namespace, name="s", uid="u", entries=entries, retries=RouteRetries()
    )
    async with operator.middlewares(admin), a_gateway(api, ENABLED):
        of_service, routing = (
            asked_by(f"modelservice/{namespace}/s"),
            RoutingActivities(control),
        )

        async def refused() -> AppliedRoute | None:
            done: AppliedRoute = await of_service.run(
                routing.apply_service_route, order
            )
            return (
                done
                if "middlewares" in done.middleware_problem
                and "forbidden" in done.middleware_problem
                else None
            )

        done = await eventually(refused)
        assert [share.endpoint for share in done.backends] == ["a"]
        async with watching(await control.api()) as watched:
            owner = ObjectOwner("ModelService", namespace, "s", "u")
            seen = await watched.until(
                owner, lambda each: bool(each.route and each.route.present)
            )
            assert seen.route
            assert seen.route.middleware is None
        # A Middleware without read rights does not block the route without it, or the
        # deletion of the service.
        with capture_logs() as logged:
            await of_service.run(
                routing.apply_service_route,
                order.model_copy(update={"retries": None, "middleware_left": True}),
            )
            await of_service.run(
                routing.remove_service_route,
                RemoveRoute(
                    namespace=namespace, name="s", uid="u", middleware_left=True
                ),
            )
        said = [each for each in logged if each["event"] == "a Middleware may be left"]
        assert [
            (each["service"], each["log_level"], "forbidden" in each["problem"])
            for each in said
        ] == [("s", "warning", True)] * 2
        assert (
            await api.get(
                ObjectId(
                    kinds.HTTP_ROUTE, namespace, service_route_name(namespace, "s")
                )
            )
            is None
        )
    await api.delete(ObjectId(kinds.NAMESPACE, "", namespace), propagation="Background")


@pytest.mark.testbed
async def test_without_the_right_to_read_gateway_classes_the_error_names_the_role(
    limited: tuple[ClusterUnderTest, ControlCluster],
) -> None:
    admin, control = limited
    api = await admin.api()
    await api.apply(
        {
            **ROLE,
            "rules": [
                rule
                for rule in ROLE["rules"]
                if rule["resources"] != ["gatewayclasses"]
            ],
        }
    )
    await eventually(partial(_passes, control))

    async def refused() -> bool:
        try:
            await (await control.api()).list(Selection(kinds.GATEWAY_CLASS))
        except PermissionDenied:
            return True
        return False

    await eventually(refused)
    async with a_gateway(api, {}), watching(await control.api()) as watched:
        seen = await watched.until(
            GATEWAY, lambda each: bool(each.gateway and each.gateway.timeouts)
        )
        assert seen.gateway
        assert seen.gateway.timeouts
        assert "gatewayclasses" in seen.gateway.timeouts.problem
        assert seen.gateway.timeouts.problem.endswith(f"; apply {ROLES_FILE} there")
        assert (
            seen.gateway.timeouts.request,
            seen.gateway.timeouts.backend_request,
        ) == (False, False)


async def _is_watched(user: ClusterApi, kind: GroupVersionKind) -> None:
    listing = await user.list(Selection(kind))
    watch = user.watch(Selection(kind), listing.resource_version)
    await watch.aclose()  # type: ignore[attr-defined]


async def _passes(control: ControlCluster) -> bool:
    try:
        await control.check()
    except PermissionDenied:
        return False
    return True
