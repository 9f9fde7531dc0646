"""Backends and routes on an API server in memory."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import Json, ObjectId
from activities.render.objects.edge import blocking_rule, header_filters
from activities.routing.activities import RoutingActivities
from activities.routing.control_cluster import ControlCluster
from api_types import labels, names
from api_types.errors import (
    InvalidInput,
    NameConflict,
    NoControlCluster,
    PermissionDenied,
)
from api_types.messages.gateway_work import (
    AppliedRoute,
    ApplyBackend,
    ApplyRoute,
    RemoveBackend,
    RemoveRoute,
    RouteEntry,
    WatchGateway,
)
from api_types.messages.routing import SelectedEndpoint
from api_types.sections.clusters import ControlClusterSettings
from tests.activities.environment.asking import asked_by
from tests.activities.environment.cluster_in_memory import cluster_in_memory, patch
from tests.activities.routing.conftest import SETTINGS, Control


@pytest_asyncio.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    async with cluster_in_memory(tmp_path) as made:
        cluster = ControlCluster(made.pool, SETTINGS)
        yield Control(
            await cluster.api(),
            RoutingActivities(cluster),
            f"t-{uuid.uuid4().hex[:8]}",
            made,
        )


def a_backend(
    control: Control, url: str, *, name: str = "qwen", uid: str = "u"
) -> ApplyBackend:
    return ApplyBackend(
        owner="ModelEndpoint", namespace=control.namespace, name=name, uid=uid, url=url
    )


def removal(order: ApplyBackend) -> RemoveBackend:
    return RemoveBackend(
        owner=order.owner, namespace=order.namespace, name=order.name, uid=order.uid
    )


def selected(
    name: str, url: str = "http://34.55.100.10/v1", rewrite: str | None = None
) -> SelectedEndpoint:
    return SelectedEndpoint(
        name=name, url=url, backend=f"me-{name}", rewrite_path=rewrite
    )


def a_route(
    control: Control, *entries: RouteEntry, name: str = "test-service", uid: str = "u"
) -> ApplyRoute:
    return ApplyRoute(
        namespace=control.namespace, name=name, uid=uid, entries=list(entries)
    )


async def stored_slices(control: Control, service: str) -> list[Json]:
    found = [
        await control.get(kinds.ENDPOINT_SLICE, f"{service}-{kind}")
        for kind in ("ipv4", "ipv6", "fqdn")
    ]
    return [each for each in found if each]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param(
            "http://34.55.100.10/v1",
            (80, "http", "IPv4", "34.55.100.10"),
            id="IPv4 over http",
        ),
        pytest.param(
            "https://api.together.xyz/v1",
            (443, "https", "FQDN", "api.together.xyz"),
            id="a DNS name",
        ),
        pytest.param(
            "https://x.example:8443",
            (8443, "https", "FQDN", "x.example"),
            id="a port over https",
        ),
        pytest.param(
            "http://[2001:db8::1]/v1", (80, "http", "IPv6", "2001:db8::1"), id="IPv6"
        ),
    ],
)
async def test_a_backend_is_a_service_and_a_slice(
    control: Control, url: str, expected: tuple[int, str, str, str]
) -> None:
    port, protocol, kind, address = expected
    order = a_backend(control, url)
    applied = await control.run(control.activities.apply_endpoint_backend, order)
    assert applied.backend == names.endpoint_service_name(control.namespace, "qwen")
    service = await control.get(kinds.SERVICE, applied.backend)
    assert service
    assert "selector" not in service["spec"]
    (found,) = service["spec"]["ports"]
    assert (found["port"], found["protocol"], found["appProtocol"]) == (
        port,
        "TCP",
        protocol,
    )
    (slice_,) = await stored_slices(control, applied.backend)
    assert (slice_["addressType"], slice_["ports"]) == (
        kind,
        [{"name": "", "port": port, "protocol": "TCP"}],
    )
    assert slice_["endpoints"] == [
        {"addresses": [address], "conditions": {"ready": True}}
    ]
    assert slice_["metadata"]["labels"]["kubernetes.io/service-name"] == applied.backend
    # Our manager owns our fields, and annotations name the owner.
    for item in (service, slice_):
        assert {
            entry["manager"]
            for entry in item["metadata"]["managedFields"]
            if entry["operation"] == "Apply"
        } == {"modelplane"}
        assert item["metadata"]["annotations"][labels.OWNER_NAME] == "qwen"
    again = await control.run(control.activities.apply_endpoint_backend, order)
    assert again == applied
    await control.run(control.activities.remove_endpoint_backend, removal(order))
    assert await control.get(kinds.SERVICE, applied.backend) is None
    assert await stored_slices(control, applied.backend) == []
    await control.run(control.activities.remove_endpoint_backend, removal(order))


async def test_an_address_of_another_type_gets_another_slice_and_the_service_stays(
    control: Control,
) -> None:
    before = await control.run(
        control.activities.apply_endpoint_backend, a_backend(control, "http://10.1.2.3")
    )
    service = await control.get(kinds.SERVICE, before.backend)
    after = await control.run(
        control.activities.apply_endpoint_backend,
        a_backend(control, "http://gateway.example.com"),
    )
    (slice_,) = await stored_slices(control, before.backend)
    assert slice_["addressType"] == "FQDN"
    stays = await control.get(kinds.SERVICE, before.backend)
    assert service
    assert stays
    assert stays["metadata"]["uid"] == service["metadata"]["uid"]
    assert after.digest != before.digest


@pytest.mark.parametrize(
    "url",
    [
        "not-a-url",
        "https://host:abc",
        "http://localhost",
        "http://127.0.0.1",
        "ftp://h.example",
        "http://u:secret@h.example",
    ],
)
async def test_a_url_that_cannot_be_used_makes_no_object(
    control: Control, url: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await control.run(
            control.activities.apply_endpoint_backend, a_backend(control, url)
        )
    assert "secret" not in refused.value.message
    assert await control.names(kinds.SERVICE) == []


async def test_a_route_has_a_rule_with_a_backend_per_endpoint(
    control: Control,
) -> None:
    entry = RouteEntry(
        endpoints=[
            selected("qwen", rewrite="/v1/"),
            selected("groq", "https://api.groq.com/openai/v1", "/openai/v1/"),
            selected("plain", "http://10.0.0.1:8080"),
        ]
    )
    applied: AppliedRoute = await control.run(
        control.activities.apply_service_route, a_route(control, entry)
    )
    route = await control.get(kinds.HTTP_ROUTE, applied.name)
    assert route
    assert route["spec"]["parentRefs"] == [
        {"name": "modelplane", "namespace": "modelplane-system"}
    ]
    rule, blocking = route["spec"]["rules"]
    assert rule["matches"] == [
        {"path": {"type": "PathPrefix", "value": f"/{control.namespace}/test-service/"}}
    ]
    assert rule["filters"] == [header_filters()[0]]
    assert blocking == blocking_rule(f"/{control.namespace}/test-service")
    # Endpoints are sorted by name.
    groq, plain, qwen = rule["backendRefs"]
    assert [
        (each["name"], each["port"], each["weight"]) for each in (groq, plain, qwen)
    ] == [
        ("me-groq", 443, 1),
        ("me-plain", 8080, 1),
        ("me-qwen", 80, 1),
    ]
    assert _rewrite(groq) == {
        "hostname": "api.groq.com",
        "path": _prefix("/openai/v1/"),
    }
    assert _rewrite(qwen) == {"path": _prefix("/v1/")}
    assert [each["type"] for each in plain["filters"]] == [
        "RequestHeaderModifier",
        "ResponseHeaderModifier",
    ]
    assert plain["filters"][0] == header_filters()[1]
    assert plain["filters"][1]["responseHeaderModifier"] == {
        "set": [{"name": "x-modelplane-endpoint", "value": "plain"}]
    }
    assert [(each.endpoint, each.weight) for each in applied.backends] == [
        ("groq", 1),
        ("plain", 1),
        ("qwen", 1),
    ]


def _prefix(path: str) -> Json:
    return {"type": "ReplacePrefixMatch", "replacePrefixMatch": path}


def _rewrite(backend: Json) -> Json:
    found = backend["filters"][0]
    assert found["type"] == "URLRewrite"
    rewrite: Json = found["urlRewrite"]
    return rewrite


async def test_a_route_without_endpoints_has_no_backends_and_an_unchanged_one_stays_as_it_is(
    control: Control,
) -> None:
    first = await control.run(
        control.activities.apply_service_route, a_route(control, RouteEntry())
    )
    route = await control.get(kinds.HTTP_ROUTE, first.name)
    assert route
    assert "backendRefs" not in route["spec"]["rules"][0]
    again = await control.run(
        control.activities.apply_service_route, a_route(control, RouteEntry())
    )
    assert (again.generation, again.digest) == (first.generation, first.digest)
    changed = await control.run(
        control.activities.apply_service_route,
        a_route(control, RouteEntry(endpoints=[selected("a")])),
    )
    assert changed.generation == first.generation + 1
    assert changed.digest != first.digest


async def test_sixteen_of_twenty_endpoints_are_routed_and_both_entries_are_present(
    control: Control,
) -> None:
    many = RouteEntry(
        weight=95, endpoints=[selected(f"a{number:02}") for number in range(16)]
    )
    few = RouteEntry(
        weight=5, endpoints=[selected(f"b{number}") for number in range(2)]
    )
    applied = await control.run(
        control.activities.apply_service_route, a_route(control, many, few)
    )
    assert len(applied.backends) == 16
    shares = {
        entry: sum(
            each.weight for each in applied.backends if each.endpoint.startswith(entry)
        )
        for entry in "ab"
    }
    assert shares["a"] / (shares["a"] + shares["b"]) == pytest.approx(0.95)


async def test_two_services_share_an_endpoint(control: Control) -> None:
    entry = RouteEntry(endpoints=[selected("a", rewrite="/x/")])
    applied = [
        await control.run(
            control.activities.apply_service_route, a_route(control, entry, name=name)
        )
        for name in ("one", "two")
    ]
    routes = [await control.get(kinds.HTTP_ROUTE, each.name) for each in applied]
    backends = [route["spec"]["rules"][0]["backendRefs"] for route in routes if route]
    assert backends[0] == backends[1]
    assert len(backends) == 2


async def test_an_object_of_another_owner_is_neither_changed_nor_deleted(
    control: Control,
) -> None:
    order = a_backend(control, "http://10.0.0.1")
    await control.run(control.activities.apply_endpoint_backend, order)
    theirs = ApplyBackend(
        owner="ModelReplica",
        namespace=control.namespace,
        name="qwen",
        uid="x",
        url="http://10.0.0.2",
    )
    with pytest.raises(NameConflict, match="belongs to ModelEndpoint"):
        await control.run(control.activities.apply_endpoint_backend, theirs)
    await control.run(control.activities.remove_endpoint_backend, removal(theirs))
    assert len(await control.names(kinds.SERVICE)) == 1
    route = a_route(control, RouteEntry())
    applied = await control.run(control.activities.apply_service_route, route)
    await control.run(
        control.activities.remove_service_route,
        RemoveRoute(namespace=control.namespace, name=route.name, uid="x"),
    )
    assert await control.get(kinds.HTTP_ROUTE, applied.name)
    await control.run(
        control.activities.remove_service_route,
        RemoveRoute(namespace=control.namespace, name=route.name, uid="u"),
    )
    assert await control.get(kinds.HTTP_ROUTE, applied.name) is None


async def test_a_removal_takes_what_predecessors_of_the_name_left_on_request(
    control: Control,
) -> None:
    order = a_backend(control, "http://10.0.0.1")
    await control.run(control.activities.apply_endpoint_backend, order)
    later = removal(order).model_copy(update={"uid": "x", "of_predecessors": True})
    another_kind = later.model_copy(update={"owner": "ModelReplica"})
    await control.run(control.activities.remove_endpoint_backend, another_kind)
    assert len(await control.names(kinds.SERVICE)) == 1
    await control.run(control.activities.remove_endpoint_backend, later)
    assert not await control.names(kinds.SERVICE)
    route = a_route(control, RouteEntry())
    applied = await control.run(control.activities.apply_service_route, route)
    await control.run(
        control.activities.remove_service_route,
        RemoveRoute(
            namespace=control.namespace, name=route.name, uid="x", of_predecessors=True
        ),
    )
    assert await control.get(kinds.HTTP_ROUTE, applied.name) is None


async def test_leftovers_of_an_earlier_owner_are_taken_over_by_the_next_one(
    control: Control,
) -> None:
    await control.run(
        control.activities.apply_endpoint_backend,
        a_backend(control, "http://10.0.0.1", uid="before"),
    )
    applied = await control.run(
        control.activities.apply_endpoint_backend,
        a_backend(control, "http://10.0.0.2", uid="after"),
    )
    service = await control.get(kinds.SERVICE, applied.backend)
    assert service
    assert service["metadata"]["annotations"][labels.OWNER_UID] == "after"
    # With a slice for each, requests would go to both addresses.
    await control.run(
        control.activities.apply_endpoint_backend,
        a_backend(control, "https://x.example", uid="last"),
    )
    assert [
        each["metadata"]["name"]
        for each in await stored_slices(control, applied.backend)
    ] == [f"{applied.backend}-fqdn"]


async def test_a_port_changed_by_another_user_is_restored(control: Control) -> None:
    order = a_backend(control, "http://10.0.0.1:8081")
    applied = await control.run(control.activities.apply_endpoint_backend, order)
    changed = {"spec": {"ports": [{"name": "", "port": 7777, "protocol": "TCP"}]}}
    await patch(
        control.cluster,
        ObjectId(kinds.SERVICE, control.namespace, applied.backend),
        changed,
    )
    again = await control.run(control.activities.apply_endpoint_backend, order)
    service = await control.get(kinds.SERVICE, applied.backend)
    assert service
    assert ([port["port"] for port in service["spec"]["ports"]], again.digest) == (
        [8081],
        applied.digest,
    )


async def test_two_attempts_at_once_end_in_one_object(control: Control) -> None:
    order = a_backend(control, "http://10.0.0.1")
    first, second = await asyncio.gather(
        *(
            control.run(control.activities.apply_endpoint_backend, order)
            for _ in range(2)
        )
    )
    assert first == second
    assert len(await control.names(kinds.SERVICE)) == 1


async def test_a_namespace_may_be_created_by_others_but_not_belong_to_the_platform(
    control: Control,
) -> None:
    await control.api.create(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": control.namespace},
        }
    )
    await control.run(
        control.activities.apply_endpoint_backend, a_backend(control, "http://10.0.0.1")
    )
    order = a_backend(control, "http://10.0.0.1").model_copy(
        update={"namespace": "kube-system"}
    )
    with pytest.raises(PermissionDenied, match="belongs to the platform"):
        await control.run(control.activities.apply_endpoint_backend, order)


async def test_it_connects_and_says_which_cluster_it_is(control: Control) -> None:
    facts = await control.run(control.activities.connect_gateway, WatchGateway(uid="g"))
    system = await control.api.get(ObjectId(kinds.NAMESPACE, "", "kube-system"))
    assert system
    assert facts.uid == system["metadata"]["uid"]
    assert facts.kubernetes_version.startswith("v1.")


async def test_without_a_control_cluster_each_activity_says_so(
    control: Control,
) -> None:
    none = RoutingActivities(
        ControlCluster(control.activities.control.clusters, ControlClusterSettings())
    )
    service = partial(asked_by, f"modelservice/{control.namespace}/test-service")
    with pytest.raises(NoControlCluster, match="no control cluster is configured"):
        await service().run(none.apply_service_route, a_route(control))
    with pytest.raises(NoControlCluster):
        await asked_by("inferencegateway/default").run(
            none.connect_gateway, WatchGateway(uid="g")
        )
