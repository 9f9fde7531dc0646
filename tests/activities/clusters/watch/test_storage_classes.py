"""The StorageClasses of a cluster.

A user without the right to list them is accepted.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

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
from activities.clusters.watch import cluster_watch
from activities.clusters.watch.cluster_watch import ClusterWatch
from activities.watching import health, reflector
from api_types.errors import PermissionDenied
from api_types.limits import STORAGE_CLASSES_MAX
from api_types.messages.observations import Observed, ObservedCluster
from tests.activities.clusters.watch.watching import watching
from tests.activities.environment.cluster_under_test import eventually
from tests.environment.idle_clusters import IdleCluster

pytestmark = pytest.mark.slow

CLUSTER = ObjectOwner("InferenceCluster", "", "eu", "u1")


class ClusterWithClasses(IdleCluster):
    """A cluster with StorageClasses by name. Listing them may be `forbidden`."""

    def __init__(self, *classes: tuple[str, bool], forbidden: bool = False) -> None:
        self.classes, self.forbidden = dict(classes), forbidden
        self.events = asyncio.Queue[Event]()

    async def resources(
        self, *, refresh: bool = False
    ) -> Mapping[GroupVersionKind, ApiResource]:
        served = ApiResource(
            kinds.STORAGE_CLASS,
            "storageclasses",
            namespaced=False,
            verbs=frozenset({"list", "watch"}),
        )
        return {**await super().resources(refresh=refresh), kinds.STORAGE_CLASS: served}

    async def list(self, selection: Selection, keep: Keep = whole) -> ObjectList:
        if selection.kind != kinds.STORAGE_CLASS:
            return await super().list(selection, keep)
        if self.forbidden:
            raise PermissionDenied("may not list StorageClasses")
        return ObjectList(
            [
                keep(_class(name, expandable=expandable))
                for name, expandable in self.classes.items()
            ],
            "1",
        )

    async def watch(
        self, selection: Selection, resource_version: str
    ) -> AsyncIterator[Event]:
        while selection.kind == kinds.STORAGE_CLASS:
            yield await self.events.get()
        async for event in super().watch(selection, resource_version):
            yield event


def _class(name: str, *, expandable: bool = False) -> Json:
    return {
        "metadata": {"name": name, "resourceVersion": "2"},
        **({"allowVolumeExpansion": True} if expandable else {}),
    }


@asynccontextmanager
async def watched(
    cluster: ClusterWithClasses,
) -> AsyncIterator[tuple[ClusterWatch, list[ObservedCluster]]]:
    """Watch a cluster, and yield the reports to its entity."""
    told: list[ObservedCluster] = []

    async def send(_: ObjectOwner, observed: Observed) -> bool:
        if observed.cluster:
            told.append(observed.cluster)
        return True

    async with watching(cluster, CLUSTER, send) as watch:
        yield watch, told


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry often."""
    monkeypatch.setattr(cluster_watch, "_DISCOVERY_SECONDS", 0.05)
    monkeypatch.setattr(health, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(reflector, "_RETRY_SECONDS", (0.01, 0.02))


def classes(told: list[ObservedCluster]) -> dict[str, bool] | None:
    """Return the last reported StorageClasses."""
    facts = told[-1].facts if told else None
    return facts.storage_classes if facts else None


async def test_storage_classes_are_reported_when_they_appear_change_and_disappear() -> (
    None
):
    cluster = ClusterWithClasses(("rwx", False), ("local", True))
    async with watched(cluster) as (_, told):
        await eventually(lambda: classes(told) == {"rwx": False, "local": True})
        await cluster.events.put(Event("MODIFIED", _class("rwx", expandable=True)))
        await eventually(lambda: classes(told) == {"rwx": True, "local": True})
        await cluster.events.put(Event("DELETED", _class("local")))
        await eventually(lambda: classes(told) == {"rwx": True})


async def test_a_user_who_may_not_list_storage_classes_can_still_observe() -> None:
    cluster = ClusterWithClasses(("rwx", False), forbidden=True)
    async with watched(cluster) as (watch, told):
        await eventually(
            lambda: (
                told
                and told[-1].replicas is not None
                and watch._reflectors[cluster_watch._STORAGE_CLASSES]._failures > 3
            )
        )
        assert (classes(told), told[-1].reachable, told[-1].error_type) == (
            None,
            True,
            "",
        )
        cluster.forbidden = False
        await eventually(lambda: classes(told) == {"rwx": False})


async def test_too_many_storage_classes_are_unknown() -> None:
    cluster = ClusterWithClasses(
        *((f"class-{number}", False) for number in range(STORAGE_CLASSES_MAX + 1))
    )
    async with watched(cluster) as (watch, told):
        await eventually(
            lambda: (
                told
                and told[-1].replicas is not None
                and len(watch._storage_classes) > STORAGE_CLASSES_MAX
            )
        )
        assert classes(told) is None
        await cluster.events.put(Event("DELETED", _class("class-0")))
        await eventually(lambda: len(classes(told) or ()) == STORAGE_CLASSES_MAX)
