"""A cluster begins to serve another version of a kind: objects are watched in one version at a time, and the facts follow."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import Event, Json, Keep, Kind, Listing, ObjectId, Resource, Selection, whole
from activities.cluster_objects.ownership import Owner
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

CLUSTER, REPLICA = Owner("InferenceCluster", "", "eu", "u1"), Owner(REPLICA_KIND, "ml", "qwen-eu-0", "u2")
OLD, NEW = (Kind(f"resource.k8s.io/{version}", "ResourceClaimTemplate") for version in ("v1beta2", "v1"))
DEPLOYMENT = kinds.DEPLOYMENT
VERBS = frozenset({"list", "watch"})
# Longer than the pause between two signals to one owner.
SIGNALLED_SECONDS = 1.5


def an_object(kind: Kind, name: str) -> Json:
    notes = {
        labels.OWNER_KIND: REPLICA.kind,
        labels.OWNER_NAMESPACE: REPLICA.namespace,
        labels.OWNER_NAME: REPLICA.name,
        labels.OWNER_UID: REPLICA.uid,
    }
    metadata = {"namespace": "ml", "name": name, "labels": {labels.MANAGED_BY: labels.MANAGED_BY_VALUE}, "annotations": notes}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


class UpgradedCluster(IdleCluster):
    """A cluster that serves other versions later. It has a Deployment and claim templates of one replica.

    `served` is what discovery names, `missing` is what is not there all the same, `forbidden` what may not be read. Claim templates are
    listed while `lists` is set; `asked` are the versions in which that was tried.
    """

    def __init__(self) -> None:
        self.release, self.served = "v1.33.2", [OLD]
        self.missing: set[Kind] = set()
        self.forbidden: set[Kind] = set()
        self.templates = ["a", "b"]
        self.deployments = ["engine"]
        self.asked: set[Kind] = set()
        self.lists = asyncio.Event()
        self.lists.set()

    async def version(self) -> str:
        return self.release

    async def resources(self, *, refresh: bool = False) -> Mapping[Kind, Resource]:
        more = {kind: Resource(kind, "resourceclaimtemplates", namespaced=True, verbs=VERBS) for kind in self.served}
        return {**await super().resources(refresh=refresh), **more}

    async def list(self, selection: Selection, keep: Keep = whole) -> Listing:
        kind = selection.kind
        if kind == DEPLOYMENT:
            return Listing([keep(an_object(kind, name)) for name in self.deployments], "1")
        if kind.kind != OLD.kind:
            return await super().list(selection, keep)
        self._check(kind)
        self.asked.add(kind)
        await self.lists.wait()
        return Listing([keep(an_object(kind, name)) for name in self.templates], "1")

    async def watch(self, selection: Selection, resource_version: str) -> AsyncIterator[Event]:
        """Follow nothing, but end with what the cluster serves; Deployments are deleted while they are watched."""
        kind, there = selection.kind, list(self.deployments)
        while kind in (DEPLOYMENT, OLD, NEW):
            await asyncio.sleep(0.02)
            if kind != DEPLOYMENT:
                self._check(kind)
            for name in [each for each in there if kind == DEPLOYMENT and each not in self.deployments]:
                there.remove(name)
                gone = an_object(kind, name)
                gone["metadata"]["resourceVersion"] = "2"
                yield Event("DELETED", gone)
        async for event in super().watch(selection, resource_version):
            yield event

    def _check(self, kind: Kind) -> None:
        if kind not in self.served or kind in self.missing:
            raise StackMissing(f"cluster eu does not serve {kind}")
        if kind in self.forbidden:
            raise PermissionDenied(f"may not list {kind}")


class Recorded:
    """What was sent to the replica and to its cluster."""

    def __init__(self) -> None:
        self.objects: list[list[str]] = []
        self.clusters: list[ObservedCluster] = []

    async def send(self, owner: Owner, observed: Observed) -> bool:
        if owner == REPLICA and observed.replica:
            self.objects.append([found.id for found in observed.replica.objects])
        if owner == CLUSTER and observed.cluster:
            self.clusters.append(observed.cluster)
        return True

    def facts(self) -> list[tuple[str, str]]:
        """Give the versions of Kubernetes and of DRA's group that were told, each change once."""
        told = [(seen.facts.kubernetes_version, seen.facts.dra_version) for seen in self.clusters if seen.facts]
        return [*told[:1], *(later for earlier, later in pairwise(told) if later != earlier)]


def ids(kind: Kind, names: Sequence[str], deployments: Sequence[str] = ("engine",)) -> list[str]:
    return sorted(str(ObjectId(each, "ml", name)) for each, found in ((DEPLOYMENT, deployments), (kind, names)) for name in found)


@asynccontextmanager
async def watched(cluster: UpgradedCluster) -> AsyncIterator[tuple[ClusterWatch, Recorded]]:
    """Watch a cluster."""
    recorded = Recorded()

    async with watching(cluster, CLUSTER, recorded.send) as watch:
        yield watch, recorded


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often for what is served; what has ended is only looked for after a pause in which an owner could be signalled."""
    monkeypatch.setattr(cluster_watch, "_DISCOVERY_SECONDS", 0.05)
    monkeypatch.setattr(cluster_watch, "RETRY_SECONDS", 0.5)
    monkeypatch.setattr(health, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(reflector, "_RETRY_SECONDS", (0.01, 0.02))


async def test_an_upgrade_is_followed_in_facts_and_in_what_is_watched() -> None:
    cluster = UpgradedCluster()
    async with watched(cluster) as (watch, recorded):

        def kinds_watched() -> set[Kind]:
            return {selection.kind for selection, task in watch._running.items() if not task.done()} & {OLD, NEW}

        await eventually(lambda: kinds_watched() == {OLD} and recorded.facts()[-1:] == [("1.33.2", "v1beta2")])
        cluster.release, cluster.served = "v1.34.0", [OLD, NEW]
        await eventually(lambda: kinds_watched() == {NEW} and recorded.facts()[-1] == ("1.34.0", "v1"))
        assert recorded.facts() == [("1.33.2", "v1beta2"), ("1.34.0", "v1")]
        assert kinds.dra_version(await cluster.resources()) == "v1"


UPGRADES = {
    "a better version is served too": ([OLD], [OLD, NEW], NEW),
    "the other version is served instead": ([OLD], [NEW], NEW),
    "the version is switched off": ([OLD, NEW], [OLD], OLD),
}


@pytest.mark.parametrize(("before", "after", "best"), UPGRADES.values(), ids=UPGRADES)
async def test_no_object_is_missing_while_it_is_listed_in_another_version(before: list[Kind], after: list[Kind], best: Kind) -> None:
    cluster = UpgradedCluster()
    cluster.served = before
    async with watched(cluster) as (watch, recorded):
        await eventually(lambda: recorded.objects)
        kept = watch._budget.used
        cluster.lists.clear()
        cluster.served = after
        await eventually(lambda: best in cluster.asked)
        await asyncio.sleep(SIGNALLED_SECONDS)
        # What is applied in the new version, as soon as that is told, is seen in it.
        assert len(recorded.facts()) == 1
        cluster.lists.set()
        await eventually(lambda: recorded.objects[-1] == ids(best, ["a", "b"]) and len(recorded.facts()) == 2)
        assert {len(objects) for objects in recorded.objects} == {3}
        # Of each object one record, whose api version is longer or shorter now.
        assert abs(watch._budget.used - kept) < reflector.weight("")


async def test_what_was_deleted_while_no_version_was_watched_is_missing_once_the_other_version_is_listed() -> None:
    cluster = UpgradedCluster()
    async with watched(cluster) as (_, recorded):
        await eventually(lambda: recorded.objects == [ids(OLD, ["a", "b"])])
        cluster.served, cluster.templates = [NEW], ["b"]
        await eventually(lambda: recorded.objects[-1] == ids(NEW, ["b"]))
        assert recorded.objects == [ids(OLD, ["a", "b"]), ids(NEW, ["b"])]


async def test_objects_of_a_kind_that_is_served_in_no_version_any_more_are_missing() -> None:
    cluster = UpgradedCluster()
    async with watched(cluster) as (_, recorded):
        await eventually(lambda: recorded.objects == [ids(OLD, ["a", "b"])])
        cluster.served = []
        await eventually(lambda: recorded.objects[-1] == ids(OLD, []))


async def test_objects_of_a_kind_that_discovery_names_and_the_server_does_not_find_are_not_missing() -> None:
    """As while one of several API servers is upgraded: any of them may answer."""
    cluster = UpgradedCluster()
    async with watched(cluster) as (_, recorded):
        await eventually(lambda: recorded.objects == [ids(OLD, ["a", "b"])])
        cluster.missing = {OLD}
        await asyncio.sleep(SIGNALLED_SECONDS)
        cluster.missing, cluster.templates = set(), ["b"]
        await eventually(lambda: recorded.objects[-1] == ids(OLD, ["b"]))
        assert recorded.objects == [ids(OLD, ["a", "b"]), ids(OLD, ["b"])]


async def test_another_version_that_may_not_be_listed_is_a_problem_of_the_cluster_and_blocks_no_owner() -> None:
    cluster = UpgradedCluster()
    async with watched(cluster) as (_, recorded):
        await eventually(lambda: recorded.objects == [ids(OLD, ["a", "b"])])
        cluster.forbidden, cluster.served = {NEW}, [OLD, NEW]
        await eventually(lambda: recorded.clusters[-1].error_type == "PermissionDenied" and recorded.facts()[-1] == ("1.33.2", "v1"))
        cluster.deployments = []
        await eventually(lambda: recorded.objects[-1] == ids(OLD, ["a", "b"], []))


async def test_the_facts_are_told_where_the_server_does_not_find_the_version_that_discovery_names() -> None:
    cluster = UpgradedCluster()
    async with watched(cluster) as (_, recorded):
        await eventually(lambda: recorded.objects)
        cluster.missing, cluster.served = {NEW}, [OLD, NEW]
        await eventually(lambda: recorded.facts()[-1] == ("1.33.2", "v1"))
        assert recorded.objects == [ids(OLD, ["a", "b"])]
