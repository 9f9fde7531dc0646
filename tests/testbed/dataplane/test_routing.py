"""The reports of a gateway controller follow from the cluster's objects, and settle."""

import copy
import itertools
from typing import Any

import pytest

from testbed.dataplane.routing import RoutingObjects, key_of, statuses

Document = dict[str, Any]
ADDRESS = "10.245.1.1"


def thing(kind: str, name: str, spec: Document, namespace: str = "ml") -> Document:
    return {
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": spec,
    }


def a_gateway(name: str = "inference-gateway", class_name: str = "testbed") -> Document:
    return thing(
        "Gateway",
        name,
        {"gatewayClassName": class_name, "listeners": [{"name": "http"}]},
        "modelplane-system",
    )


def a_route(backend: Document | None = None, **parent: str) -> Document:
    parents = [
        {"name": "inference-gateway", "namespace": "modelplane-system", **parent}
    ]
    return thing(
        "HTTPRoute",
        "route",
        {
            "parentRefs": parents,
            "rules": [{"backendRefs": [backend or {"name": "engine"}]}],
        },
    )


def cluster(
    *routes: Document,
    gateways: tuple[Document, ...] = (),
    pools: tuple[Document, ...] = (),
) -> RoutingObjects:
    gateway_class = {
        "kind": "GatewayClass",
        "metadata": {"name": "testbed", "generation": 1},
        "spec": {"controllerName": "us"},
    }
    engine = thing("Service", "engine", {})
    return RoutingObjects(
        gateway_classes={("", "testbed"): gateway_class},
        gateways={key_of(each): each for each in gateways or (a_gateway(),)},
        routes={key_of(each): each for each in routes},
        services={key_of(engine): engine},
        pools={key_of(each): each for each in pools},
    )


def settle(objects: RoutingObjects) -> int:
    """Write every status as the API server would, until nothing changes.

    Return the number of rounds.
    """
    clock = (f"2026-01-01T00:00:{second:02}Z" for second in itertools.count())
    for rounds in range(10):
        changes = statuses(objects, ADDRESS, lambda: next(clock))
        if not changes:
            return rounds
        for item, status in changes:
            item["status"] = {**item.get("status", {}), **copy.deepcopy(status)}
    raise AssertionError("it never settles")


def verdicts(item: Document) -> list[tuple[str, str]]:
    parents = item.get("status", {}).get("parents", [])
    return [
        (each["status"], each["reason"])
        for parent in parents
        for each in parent["conditions"]
    ]


GOOD = [("True", "Accepted"), ("True", "ResolvedRefs")]
POOL = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "pool"}


@pytest.mark.parametrize(
    ("route", "want"),
    [
        pytest.param(a_route(), GOOD, id="parent and backend are there"),
        pytest.param(a_route(sectionName="http"), GOOD, id="the listener is there"),
        pytest.param(
            a_route(sectionName="https"),
            [("False", "NoMatchingParent"), GOOD[1]],
            id="no such listener",
        ),
        pytest.param(
            a_route({"name": "gone"}),
            [GOOD[0], ("False", "BackendNotFound")],
            id="no such Service",
        ),
        pytest.param(
            a_route({"name": "engine", "namespace": "other"}),
            [GOOD[0], ("False", "BackendNotFound")],
            id="no such Service there",
        ),
        pytest.param(a_route(POOL), GOOD, id="a pool as backend"),
        pytest.param(
            a_route(POOL | {"name": "gone"}),
            [GOOD[0], ("False", "BackendNotFound")],
            id="no such pool",
        ),
        pytest.param(a_route(name="unknown"), [], id="no such Gateway"),
    ],
)
def test_a_route_is_judged_by_its_parent_and_backends(
    route: Document, want: list[tuple[str, str]]
) -> None:
    objects = cluster(copy.deepcopy(route), pools=(thing("InferencePool", "pool", {}),))
    settle(objects)
    assert verdicts(objects.routes["ml", "route"]) == want


def test_statuses_settle_in_one_round() -> None:
    assert settle(cluster(a_route(), pools=(thing("InferencePool", "pool", {}),))) == 1


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    objects = cluster(a_route())
    settle(objects)
    before = [
        each["lastTransitionTime"]
        for each in objects.routes["ml", "route"]["status"]["parents"][0]["conditions"]
    ]
    route = objects.routes["ml", "route"]
    route["metadata"]["generation"] = 2
    del objects.services["ml", "engine"]
    settle(objects)
    conditions = route["status"]["parents"][0]["conditions"]
    assert [each["observedGeneration"] for each in conditions] == [2, 2]
    assert conditions[0]["lastTransitionTime"] == before[0]
    assert conditions[1]["status"] == "False"


def test_the_status_of_another_controller_is_kept() -> None:
    route = a_route()
    theirs = {
        "parentRef": route["spec"]["parentRefs"][0],
        "controllerName": "them",
        "conditions": [],
    }
    route["status"] = {"parents": [theirs]}
    settle(cluster(route))
    assert [parent["controllerName"] for parent in route["status"]["parents"]] == [
        "us",
        "them",
    ]


def test_a_gateway_of_an_unknown_class_waits_and_its_routes_get_no_status() -> None:
    objects = cluster(a_route(), gateways=(a_gateway(class_name="unknown"),))
    settle(objects)
    gateway = objects.gateways["modelplane-system", "inference-gateway"]["status"]
    assert [(each["type"], each["status"]) for each in gateway["conditions"]] == [
        ("Accepted", "False"),
        ("Programmed", "False"),
    ]
    assert gateway["addresses"] == []
    assert verdicts(objects.routes["ml", "route"]) == []


def test_a_gateway_counts_its_routes_and_has_the_address() -> None:
    objects = cluster(a_route())
    settle(objects)
    status = objects.gateways["modelplane-system", "inference-gateway"]["status"]
    assert status["addresses"] == [{"type": "IPAddress", "value": ADDRESS}]
    assert [listener["attachedRoutes"] for listener in status["listeners"]] == [1]


def test_a_pool_is_accepted_where_its_routes_lead_from() -> None:
    other = a_gateway("other")
    route = a_route(POOL, name="other")
    pool = thing("InferencePool", "pool", {})
    settle(cluster(route, gateways=(a_gateway(), other), pools=(pool,)))
    assert [parent["parentRef"]["name"] for parent in pool["status"]["parents"]] == [
        "other"
    ]
