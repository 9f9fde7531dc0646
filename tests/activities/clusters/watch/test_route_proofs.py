"""When a watch reports a new route: only after the gateway has answered a request to it."""

import pytest

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    Json,
    Keep,
    ObjectId,
    ObjectList,
    Selection,
    whole,
)
from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.watch import route_proofs
from activities.clusters.watch.observation_index import UNPROVEN, ObservationIndex
from activities.clusters.watch.route_proofs import is_served, prove_routes
from activities.observe.objects import ObjectSeen, ParentStatusSeen
from activities.watching.reflector import NamespacedName
from api_types.clock import utc_now
from api_types.errors import ModelplaneError, PermissionDenied, ServerError
from api_types.messages.observations import ObservedRoute
from tests.activities.environment.cluster_under_test import eventually
from tests.environment.background import in_background
from tests.environment.idle_clusters import IdleCluster

CLUSTER = ObjectOwner("InferenceCluster", "", "prod-eu", "u1")
REPLICA = ObjectOwner("ModelReplica", "ml-team", "qwen", "u2")
ROUTE = ObjectId(kinds.HTTP_ROUTE, "ml-team", "main")
ENVOY: Json = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"namespace": "envoy-gateway-system", "name": "envoy"},
    "spec": {"ports": [{"port": 8080}]},
}


class Gateway(IdleCluster):
    """A cluster whose API server passes requests on to the gateway.

    The last of `statuses` is repeated.
    """

    def __init__(
        self,
        *statuses: int | None,
        services: list[Json] | None = None,
        error: ModelplaneError | None = None,
    ) -> None:
        self._statuses = list(statuses)
        self._services = [ENVOY] if services is None else services
        self._error = error
        self.requests: list[tuple[str, int, str]] = []

    async def list(self, selection: Selection, keep: Keep = whole) -> ObjectList:
        assert (selection.kind, selection.namespace) == (
            kinds.SERVICE,
            "envoy-gateway-system",
        )
        if self._error:
            raise self._error
        return ObjectList(list(map(keep, self._services)), "1")

    async def proxied_status(
        self, service: ObjectId, port: int, path: str
    ) -> int | None:
        self.requests.append((service.name, port, path))
        return self._statuses.pop(0) if self._statuses[1:] else self._statuses[0]


@pytest.mark.parametrize(
    ("gateway", "served"),
    [
        pytest.param(Gateway(404), False, id="no such route"),
        pytest.param(Gateway(500), True, id="the blocked path"),
        pytest.param(Gateway(None), True, id="not passed on"),
        pytest.param(Gateway(services=[]), True, id="another gateway"),
        pytest.param(Gateway(error=PermissionDenied("no")), True, id="not permitted"),
        pytest.param(Gateway(error=ServerError("busy")), False, id="try again"),
    ],
)
async def test_only_a_gateway_without_the_route_does_not_serve_it(
    gateway: Gateway, served: bool
) -> None:
    assert await is_served(gateway, REPLICA) == served
    assert gateway.requests in ([], [("envoy", 8080, "/ml-team/qwen/metrics")])


def put(index: ObservationIndex, *, accepted: bool = True) -> None:
    status = ParentStatusSeen(
        accepted, "" if accepted else "no", reported=True, created=utc_now()
    )
    index.put_object(
        kinds.HTTP_ROUTE,
        NamespacedName("ml-team", "main"),
        ObjectSeen(ROUTE, REPLICA, "digest", parent_status=status),
    )


def observed(index: ObservationIndex) -> ObservedRoute:
    replica = index.observation_for(REPLICA, utc_now()).observed.replica
    assert replica is not None
    (route,) = replica.routes
    return route


def test_routes_that_exist_when_the_watch_begins_count_as_served() -> None:
    index = ObservationIndex(CLUSTER, lambda _: None)
    put(index)
    index.put_listed()
    put(index)
    assert observed(index).accepted
    assert not index.has_unproven.is_set()


async def test_a_new_route_is_accepted_when_the_gateway_serves_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route_proofs, "_PROOF_SECONDS", 0.01)
    changed: list[ObjectOwner] = []
    index = ObservationIndex(CLUSTER, changed.append)
    index.put_listed()
    put(index, accepted=False)
    assert observed(index).message == "no"
    put(index)
    assert observed(index) == ObservedRoute(
        name="main", accepted=False, message=UNPROVEN
    )
    changed.clear()
    gateway = Gateway(404, 500)
    async with in_background(prove_routes(index, lambda: gateway)):
        await eventually(lambda: observed(index).accepted)
    assert changed == [REPLICA]
    assert len(gateway.requests) == 2
    put(index, accepted=False)
    put(index)
    assert observed(index).accepted


def test_a_deleted_route_needs_no_proof_and_a_recreated_one_needs_another() -> None:
    index = ObservationIndex(CLUSTER, lambda _: None)
    index.put_listed()
    put(index)
    index.put_object(kinds.HTTP_ROUTE, NamespacedName("ml-team", "main"), None)
    assert index.unproven_routes() == []
    put(index)
    assert [route.target for route in index.unproven_routes()] == [ROUTE]
