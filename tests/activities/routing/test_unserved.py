"""Signals about objects of a kind that the control cluster no longer serves.

A real cluster deletes them with their definition.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import pytest

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    ApiResource,
    Event,
    GroupVersionKind,
    Json,
    Keep,
    ObjectList,
    Selection,
    whole,
)
from activities.cluster_objects.ownership import ObjectOwner
from activities.render.objects.manifest import RenderOwner
from activities.render.services.route import service_route
from activities.routing import watch
from activities.routing.watch import ControlWatch
from api_types.errors import ServerError, StackMissing
from api_types.messages.gateway_work import ControlObserved
from tests.activities.environment.cluster_under_test import eventually
from tests.environment.background import in_background
from tests.environment.idle_clusters import IdleCluster

pytestmark = pytest.mark.slow

GATEWAY, SERVICE = (
    ObjectOwner("InferenceGateway", "", "default", "g"),
    ObjectOwner("ModelService", "ml", "s", "u"),
)
ROUTE: Json = service_route(RenderOwner(*SERVICE, generation=0), []).manifest

Served = Mapping[GroupVersionKind, ApiResource]


class Routes(IdleCluster):
    """A cluster with one route, which stops serving the kind, and serves it again.

    `discover` changes the kinds that it reports. `listed`, `followed` and `refused`
    count the lists, watches and refused requests of routes.
    """

    served, listed, refused, followed = True, 0, 0, 0

    def __init__(self, discover: Callable[[Served], Served] = dict) -> None:
        self._discover = discover

    async def resources(self, *, refresh: bool = False) -> Served:
        return self._discover(await super().resources(refresh=refresh))

    async def list(self, selection: Selection, keep: Keep = whole) -> ObjectList:
        if selection.kind != kinds.HTTP_ROUTE:
            return await super().list(selection, keep)
        self._check()
        self.listed += 1
        return ObjectList(
            [keep({**ROUTE, "metadata": {**ROUTE["metadata"], "generation": 1}})], "1"
        )

    async def watch(
        self, selection: Selection, resource_version: str
    ) -> AsyncIterator[Event]:
        if selection.kind != kinds.HTTP_ROUTE:
            async for event in super().watch(selection, resource_version):
                yield event
        self._check()
        self.followed += 1

    def _check(self) -> None:
        if not self.served:
            self.refused += 1
            raise StackMissing("the control cluster does not serve HTTPRoute")


@asynccontextmanager
async def watching(cluster: IdleCluster) -> AsyncIterator[list[bool]]:
    """Watch a cluster, and return whether the service got the report that its route
    exists.
    """
    told = list[bool]()

    async def resolve() -> IdleCluster:
        return cluster

    async def send(owner: ObjectOwner, observed: ControlObserved) -> bool:
        if owner == SERVICE and observed.route:
            told.append(observed.route.present)
        return True

    async def find_absent(here: frozenset[str]) -> AsyncIterator[ObjectOwner]:
        for _ in here - {SERVICE.workflow_id}:
            yield GATEWAY

    async with in_background(ControlWatch(GATEWAY, resolve, send, find_absent).run()):
        yield told


async def test_a_service_is_notified_when_its_route_disappears_with_the_kind_and_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "_RESTART_SECONDS", 0.05)
    cluster, expected = Routes(), list[bool]()
    async with watching(cluster) as told:
        for served in (True, False, True):
            cluster.served = served
            expected.append(served)
            await eventually(partial(expected.__eq__, told))
        assert cluster.listed == 2


def fails(_: Served) -> Served:
    raise ServerError("no discovery document")


@pytest.mark.parametrize(
    "discover",
    [
        pytest.param(
            lambda others: {
                **others,
                kinds.HTTP_ROUTE: ApiResource(
                    kinds.HTTP_ROUTE, "", namespaced=True, verbs=frozenset()
                ),
            },
            id="served",
        ),
        pytest.param(fails, id="no discovery"),
        pytest.param(lambda _: {}, id="no API server"),
    ],
)
async def test_a_route_stays_known_while_no_api_server_says_that_its_kind_is_not_served(
    monkeypatch: pytest.MonkeyPatch, discover: Callable[[Served], Served]
) -> None:
    monkeypatch.setattr(watch, "_RESTART_SECONDS", 0.05)
    cluster = Routes(discover)
    async with watching(cluster) as told:
        await eventually(partial([True].__eq__, told))
        cluster.served = False
        await eventually(lambda: cluster.refused > 2)
        cluster.served, followed = True, cluster.followed
        await eventually(lambda: cluster.followed > followed)
        assert (told, cluster.listed) == ([True], 1)
