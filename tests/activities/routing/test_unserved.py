"""What is told of the objects of a kind that the control cluster no longer serves: a real one deletes them with its definition."""

from collections.abc import AsyncIterator

import pytest

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import Event, Json, Keep, Listing, Selection, whole
from activities.cluster_objects.ownership import Owner
from activities.render.objects.manifest import Owner as RenderedOwner
from activities.render.services.route import service_route
from activities.routing import watch
from activities.routing.watch import ControlWatch
from api_types.errors import StackMissing
from api_types.messages.gateway_work import ControlObserved
from tests.activities.environment.cluster_under_test import eventually
from tests.environment.background import in_background
from tests.environment.idle_clusters import IdleCluster

GATEWAY, SERVICE = Owner("InferenceGateway", "", "default", "g"), Owner("ModelService", "ml", "s", "u")
ROUTE: Json = service_route(RenderedOwner(*SERVICE, generation=0), []).manifest


class Routes(IdleCluster):
    """A cluster with one route, which stops serving the kind, and serves it again. `listed`: how often routes were listed."""

    served, listed = True, 0

    async def list(self, selection: Selection, keep: Keep = whole) -> Listing:
        if selection.kind != kinds.HTTP_ROUTE:
            return await super().list(selection, keep)
        self._check()
        self.listed += 1
        return Listing([keep({**ROUTE, "metadata": {**ROUTE["metadata"], "generation": 1}})], "1")

    async def watch(self, selection: Selection, resource_version: str) -> AsyncIterator[Event]:
        if selection.kind != kinds.HTTP_ROUTE:
            async for event in super().watch(selection, resource_version):
                yield event
        self._check()

    def _check(self) -> None:
        if not self.served:
            raise StackMissing("the control cluster does not serve HTTPRoute")


async def test_a_service_is_told_that_its_route_is_gone_with_the_kind_and_when_it_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_RESTART_SECONDS", 0.05)
    cluster, sent = Routes(), list[ControlObserved]()

    async def resolve() -> IdleCluster:
        return cluster

    async def send(owner: Owner, observed: ControlObserved) -> bool:
        if owner == SERVICE:
            sent.append(observed)
        return True

    async def find_absent(here: frozenset[str]) -> AsyncIterator[Owner]:
        for _ in here - {SERVICE.workflow_id}:
            yield GATEWAY

    expected = list[bool]()

    def is_told() -> bool:
        return [each.route.present for each in sent if each.route] == expected

    async with in_background(ControlWatch(GATEWAY, resolve, send, find_absent).run()):
        for served in (True, False, True):
            cluster.served = served
            expected.append(served)
            await eventually(is_told)
        assert cluster.listed == 2
