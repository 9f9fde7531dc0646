"""No workflow is signalled until everything was listed once.

In a partial list the other objects look deleted.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from activities.cluster_objects.cluster_api import (
    ClusterApi,
    Event,
    Keep,
    ObjectList,
    Selection,
    whole,
)
from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.watch.cluster_watch import ClusterWatch
from activities.watching import health, reflector
from api_types.errors import AnswerTooLarge
from api_types.messages.observations import Observed
from tests.activities.clusters.watch.watching import watching
from tests.activities.environment.cluster_under_test import eventually
from tests.environment.background import in_background
from tests.environment.idle_clusters import IdleCluster

CLUSTER, REPLICA = (
    ObjectOwner("InferenceCluster", "", "eu", "u1"),
    ObjectOwner("ModelReplica", "ml", "qwen-eu-0", "u2"),
)


class SlowPods(IdleCluster):
    """A cluster that lists its pods only on request."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.listed: set[str] = set()

    async def list(self, selection: Selection, keep: Keep = whole) -> ObjectList:
        if selection.kind.kind == "Pod":
            await self.told.wait()
        self.listed.add(selection.kind.kind)
        return await super().list(selection, keep)


@pytest.mark.slow
async def test_an_owner_waits_until_a_new_watch_has_listed_every_kind() -> None:
    cluster, sent = SlowPods(), list[ObjectOwner]()

    async def resolve() -> ClusterApi:
        return cluster

    async def send(owner: ObjectOwner, observed: Observed) -> bool:
        sent.append(owner)
        return bool(observed)

    async def find_absent(here: frozenset[str]) -> AsyncIterator[ObjectOwner]:
        if REPLICA.workflow_id not in here:
            yield REPLICA

    watch = ClusterWatch(CLUSTER, resolve, send, find_absent)
    async with in_background(watch.run()):
        # The cluster itself is signalled, because its objects were listed.
        await eventually(
            lambda: CLUSTER in sent and {"Node", "Deployment"} <= cluster.listed
        )
        assert (
            watch._is_blocked(REPLICA),
            "Pod" in cluster.listed,
            REPLICA in sent,
        ) == (True, False, False)
        cluster.told.set()
        await eventually(lambda: REPLICA in sent)


class LargePods(IdleCluster):
    """A cluster whose list of pods becomes too large to read."""

    def __init__(self) -> None:
        self.lists = 0

    async def list(self, selection: Selection, keep: Keep = whole) -> ObjectList:
        if selection.kind.kind == "Pod":
            self.lists += 1
            if self.lists > 3:
                raise AnswerTooLarge(
                    "cluster eu: GET /api/v1/pods: the response is larger than 16 MiB"
                )
        return await super().list(selection, keep)

    async def watch(
        self, selection: Selection, resource_version: str
    ) -> AsyncIterator[Event]:
        if selection.kind.kind == "Pod":
            raise AnswerTooLarge(
                "cluster eu: a line of GET /api/v1/pods: the response is larger than 8 MiB"
            )
        async for event in super().watch(selection, resource_version):
            yield event


async def test_a_response_that_is_too_large_is_reported_and_the_watch_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "PROBE_SECONDS", 0.05)
    monkeypatch.setattr(reflector, "_RETRY_SECONDS", (0.01, 0.02))
    cluster, sent = LargePods(), list[Observed]()

    async def send(_: ObjectOwner, observed: Observed) -> bool:
        sent.append(observed)
        return True

    async with watching(cluster, CLUSTER, send):
        reported = await eventually(
            lambda: next(
                (
                    found.cluster
                    for found in sent
                    if found.cluster and found.cluster.error
                ),
                None,
            )
        )
        assert (reported.reachable, reported.error_type) == (True, "AnswerTooLarge")
        assert "GET /api/v1/pods: the response is larger than" in reported.error
        tried = cluster.lists
        await eventually(lambda: cluster.lists > tried)
