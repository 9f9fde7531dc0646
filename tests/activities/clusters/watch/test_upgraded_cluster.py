"""A cluster begins to serve another version of a kind: objects are watched in one version at a time, and the facts follow."""

import asyncio
from collections.abc import Mapping

import pytest

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, Kind, Resource
from activities.cluster_objects.ownership import Owner
from activities.clusters.watch import cluster_watch
from activities.clusters.watch.cluster_watch import ClusterWatch
from api_types.messages.observations import Observed
from tests.activities.environment.cluster_under_test import eventually
from tests.environment.idle_clusters import IdleCluster

CLUSTER = Owner("InferenceCluster", "", "eu", "u1")
OLD, NEW = (Kind(f"resource.k8s.io/{version}", "ResourceClaimTemplate") for version in ("v1beta2", "v1"))
VERBS = frozenset({"list", "watch"})


class UpgradedCluster(IdleCluster):
    """A cluster that serves more versions later."""

    def __init__(self) -> None:
        self.release, self.served = "v1.33.2", [OLD]

    async def version(self) -> str:
        return self.release

    async def resources(self, *, refresh: bool = False) -> Mapping[Kind, Resource]:
        more = {kind: Resource(kind, "resourceclaimtemplates", namespaced=True, verbs=VERBS) for kind in self.served}
        return {**await super().resources(refresh=refresh), **more}


async def test_an_upgrade_is_followed_in_facts_and_in_what_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_watch, "_DISCOVERY_SECONDS", 0.05)
    cluster, facts = UpgradedCluster(), list[tuple[str, str]]()

    async def resolve() -> ClusterApi:
        return cluster

    async def send(owner: Owner, observed: Observed) -> bool:
        if owner == CLUSTER and observed.cluster and observed.cluster.facts:
            facts.append((observed.cluster.facts.kubernetes_version, observed.cluster.facts.dra_version))
        return True

    async def find_absent(here: frozenset[str]) -> list[Owner]:
        del here
        return []

    def watched() -> set[Kind]:
        return {selection.kind for selection, task in watch._running.items() if not task.done()} & {OLD, NEW}

    watch = ClusterWatch(CLUSTER, resolve, send, find_absent)
    task = asyncio.create_task(watch.run())
    try:
        await eventually(lambda: watched() == {OLD} and facts[-1:] == [("1.33.2", "v1beta2")])
        cluster.release, cluster.served = "v1.34.0", [OLD, NEW]
        await eventually(lambda: watched() == {NEW} and facts[-1] == ("1.34.0", "v1"))
        # Both were looked for many times; what stays the same is told once.
        assert facts == [("1.33.2", "v1beta2"), ("1.34.0", "v1")]
        assert kinds.dra_version(await cluster.resources()) == "v1"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
