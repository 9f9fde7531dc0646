"""A cluster starts to serve another version of a kind.

Objects are watched in one version at a time, and the facts follow.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    ApiResource,
    Event,
    GroupVersionKind,
    Json,
    Keep,
    ObjectId,
    ObjectList,
    Selection,
    whole,
)
from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.watch import cluster_watch
from activities.clusters.watch.cluster_watch import ClusterWatch
from activities.clusters.watch.observation_index import REPLICA as REPLICA_KIND
from activities.watching import health, reflector
from api_types import labels
from api_types.errors import PermissionDenied, StackMissing
from api_types.messages.observations import Observed, ObservedCluster
from tests.activities.clusters.watch.watching import watching
from tests.activities.environment.cluster_under_test import eventually
from tests.environment.idle_clusters import IdleCluster

pytestmark = pytest.mark.slow

CLUSTER, REPLICA = (
    ObjectOwner("InferenceCluster", "", "eu", "u1"),
    ObjectOwner(REPLICA_KIND, "ml", "qwen-eu-0", "u2"),
)
OLD, NEW = (
    GroupVersionKind(f"resource.k8s.io/{version}", "ResourceClaimTemplate")
    for version in ("v1beta2", "v1")
)
DEPLOYMENT = kinds.DEPLOYMENT
VERBS = frozenset({"list", "watch"})
# Longer than the pause between two signals to one owner.
SIGNALLED_SECONDS = 1.5


def an_object(kind: GroupVersionKind, name: str) -> Json:
    notes = {
        labels.OWNER_KIND: REPLICA.kind,
        labels.OWNER_NAMESPACE: REPLICA.namespace,
        labels.OWNER_NAME: REPLICA.name,
        labels.OWNER_UID: REPLICA.uid,
    }
    metadata = {
        "namespace": "ml",
        "name": name,
        "labels": {labels.MANAGED_BY: labels.MANAGED_BY_VALUE},
        "annotations": notes,
    }
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


class UpgradedCluster(IdleCluster):
    """A cluster that serves other versions later, with a Deployment and claim
    templates.

    `served` lists the discovered versions, `missing` the discovered versions that the
    server does not find, and `forbidden` the versions that cannot be read. Claim
    templates are listed while `lists` is set. `asked` records the attempted versions.
    """

    def __init__(self) -> None:
        self.release, self.served = "v1.33.2", [OLD]
        self.missing: set[GroupVersionKind] = set()
        self.forbidden: set[GroupVersionKind] = set()
        self.templates = ["a", "b"]
        self.deployments = ["engine"]
        self.asked: set[GroupVersionKind] = set()
        self.lists = asyncio.Event()
        self.lists.set()

    async def version(self) -> str:
        return self.release

    async def resources(
        self, *, refresh: bool = False
    ) -> Mapping[GroupVersionKind, ApiResource]:
        more = {
            kind: ApiResource(
                kind, "resourceclaimtemplates", namespaced=True, verbs=VERBS
            )
            for kind in self.served
        }
        return {**await super().resources(refresh=refresh), **more}

    async def list(self, selection: Selection, keep: Keep = whole) -> ObjectList:
        kind = selection.kind
        if kind == DEPLOYMENT:
            return ObjectList(
                [keep(an_object(kind, name)) for name in self.deployments], "1"
            )
        if kind.kind != OLD.kind:
            return await super().list(selection, keep)
        self._check(kind)
        self.asked.add(kind)
        await self.lists.wait()
        return ObjectList([keep(an_object(kind, name)) for name in self.templates], "1")

    async def watch(
        self, selection: Selection, resource_version: str
    ) -> AsyncIterator[Event]:
        """End the watch when the served versions change.

        Deployments are deleted meanwhile.
        """
        kind, there = selection.kind, list(self.deployments)
        while kind in (DEPLOYMENT, OLD, NEW):
            await asyncio.sleep(0.02)
            if kind != DEPLOYMENT:
                self._check(kind)
            for name in [
                each
                for each in there
                if kind == DEPLOYMENT and each not in self.deployments
            ]:
                there.remove(name)
                gone = an_object(kind, name)
                gone["metadata"]["resourceVersion"] = "2"
                yield Event("DELETED", gone)
        async for event in super().watch(selection, resource_version):
            yield event

    def _check(self, kind: GroupVersionKind) -> None:
        if kind not in self.served or kind in self.missing:
            raise StackMissing(f"cluster eu does not serve {kind}")
        if kind in self.forbidden:
            raise PermissionDenied(f"may not list {kind}")


class Recorded:
    """The signals to the replica and to its cluster."""

    def __init__(self) -> None:
        self.objects: list[list[str]] = []
        self.clusters: list[ObservedCluster] = []

    async def send(self, owner: ObjectOwner, observed: Observed) -> bool:
        if owner == REPLICA and observed.replica:
            self.objects.append([found.id for found in observed.replica.objects])
        if owner == CLUSTER and observed.cluster:
            self.clusters.append(observed.cluster)
        return True

    def facts(self) -> list[tuple[str, str]]:
        """Return the published versions of Kubernetes and of DRA, each change once."""
        told = [
            (seen.facts.kubernetes_version, seen.facts.dra_version)
            for seen in self.clusters
            if seen.facts
        ]
        return [
            *told[:1],
            *(later for earlier, later in pairwise(told) if later != earlier),
        ]


def ids(
    kind: GroupVersionKind,
    names: Sequence[str],
    deployments: Sequence[str] = ("engine",),
) -> list[str]:
    return sorted(
        str(ObjectId(each, "ml", name))
        for each, found in ((DEPLOYMENT, deployments), (kind, names))
        for name in found
    )


@asynccontextmanager
async def watched(
    cluster: UpgradedCluster,
) -> AsyncIterator[tuple[ClusterWatch, Recorded]]:
    """Watch a cluster."""
    recorded = Recorded()

    async with watching(cluster, CLUSTER, recorded.send) as watch:
        yield watch, recorded


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run discovery often, and check ended watches after a pause that allows a signal."""
    monkeypatch.setattr(cluster_watch, "_DISCOVERY_SECONDS", 0.05)
    monkeypatch.setattr(cluster_watch, "RETRY_SECONDS", 0.5)
    monkeypatch.setattr(health, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(reflector, "_RETRY_SECONDS", (0.01, 0.02))


async def test_an_upgrade_changes_facts_and_watched_kinds() -> None:
    cluster = UpgradedCluster()
    async with watched(cluster) as (watch, recorded):

        def kinds_watched() -> set[GroupVersionKind]:
            return {
                selection.kind
                for selection, task in watch._running.items()
                if not task.done()
            } & {OLD, NEW}

        await eventually(
            lambda: (
                kinds_watched() == {OLD}
                and recorded.facts()[-1:] == [("1.33.2", "v1beta2")]
            )
        )
        cluster.release, cluster.served = "v1.34.0", [OLD, NEW]
        await eventually(
            lambda: (
                kinds_watched() == {NEW} and recorded.facts()[-1] == ("1.34.0", "v1")
            )
        )
        assert recorded.facts() == [("1.33.2", "v1beta2"), ("1.34.0", "v1")]
        assert kinds.dra_version(await cluster.resources()) == "v1"


UPGRADES = {
    "a better version is served too": ([OLD], [OLD, NEW], NEW),
    "the other version is served instead": ([OLD], [NEW], NEW),
    "the version is switched off": ([OLD, NEW], [OLD], OLD),
}


@pytest.mark.parametrize(("before", "after", "best"), UPGRADES.values(), ids=UPGRADES)
async def test_no_object_is_missing_while_it_is_listed_in_another_version(
    before: list[GroupVersionKind],
    after: list[GroupVersionKind],
    best: GroupVersionKind,
) -> None:
    cluster = UpgradedCluster()
    cluster.served = before
    async with watched(cluster) as (watch, recorded):
        await eventually(lambda: recorded.objects)
        kept = watch._budget.used
        cluster.lists.clear()
        cluster.served = after
        await eventually(lambda: best in cluster.asked)
        await asyncio.sleep(SIGNALLED_SECONDS)
        # An object that is applied in the new version after its publication is
        # observed.
        assert len(recorded.facts()) == 1
        cluster.lists.set()
        await eventually(
            lambda: (
                recorded.objects[-1] == ids(best, ["a", "b"])
                and len(recorded.facts()) == 2
            )
        )
        assert {len(objects) for objects in recorded.objects} == {3}
        # One record per object, whose API version is longer or shorter now.
        assert abs(watch._budget.used - kept) < reflector.weight("")


async def test_objects_deleted_while_unwatched_are_missing_once_the_new_version_is_listed() -> (
    None
):
    cluster = UpgradedCluster()
    async with watched(cluster) as (_, recorded):
        await eventually(lambda: recorded.objects == [ids(OLD, ["a", "b"])])
        cluster.served, cluster.templates = [NEW], ["b"]
        await eventually(lambda: recorded.objects[-1] == ids(NEW, ["b"]))
        assert recorded.objects == [ids(OLD, ["a", "b"]), ids(NEW, ["b"])]


async def test_objects_of_a_kind_that_is_no_longer_served_are_missing() -> None:
    cluster = UpgradedCluster()
    async with watched(cluster) as (_, recorded):
        await eventually(lambda: recorded.objects == [ids(OLD, ["a", "b"])])
        cluster.served = []
        await eventually(lambda: recorded.objects[-1] == ids(OLD, []))


async def test_objects_of_a_discovered_kind_that_the_server_does_not_find_are_not_missing() -> (
    None
):
    """This happens while one of several API servers is upgraded: any of them may
    respond.
    """
    cluster = UpgradedCluster()
    async with watched(cluster) as (_, recorded):
        await eventually(lambda: recorded.objects == [ids(OLD, ["a", "b"])])
        cluster.missing = {OLD}
        await asyncio.sleep(SIGNALLED_SECONDS)
        cluster.missing, cluster.templates = set(), ["b"]
        await eventually(lambda: recorded.objects[-1] == ids(OLD, ["b"]))
        assert recorded.objects == [ids(OLD, ["a", "b"]), ids(OLD, ["b"])]


async def test_an_unlistable_version_is_reported_for_the_cluster_and_blocks_no_owner() -> (
    None
):
    cluster = UpgradedCluster()
    async with watched(cluster) as (_, recorded):
        await eventually(lambda: recorded.objects == [ids(OLD, ["a", "b"])])
        cluster.forbidden, cluster.served = {NEW}, [OLD, NEW]
        await eventually(
            lambda: (
                recorded.clusters[-1].error_type == "PermissionDenied"
                and recorded.facts()[-1] == ("1.33.2", "v1")
            )
        )
        cluster.deployments = []
        await eventually(lambda: recorded.objects[-1] == ids(OLD, ["a", "b"], []))


async def test_facts_are_published_if_the_server_does_not_find_a_discovered_version() -> (
    None
):
    cluster = UpgradedCluster()
    async with watched(cluster) as (_, recorded):
        await eventually(lambda: recorded.objects)
        cluster.missing, cluster.served = {NEW}, [OLD, NEW]
        await eventually(lambda: recorded.facts()[-1] == ("1.33.2", "v1"))
        assert recorded.objects == [ids(OLD, ["a", "b"])]
