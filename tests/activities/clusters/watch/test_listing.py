"""Until everything was listed once nobody is signalled: a part of the objects looks as if the others were deleted. W6 of the protocol."""

import asyncio

from activities.cluster_objects.cluster_api import ClusterApi, Listing, Selection
from activities.cluster_objects.ownership import Owner
from activities.clusters.watch.cluster_watch import ClusterWatch
from api_types.messages.observations import Observed
from tests.activities.environment.cluster_under_test import eventually
from tests.environment.idle_clusters import IdleCluster

CLUSTER, REPLICA = Owner("InferenceCluster", "", "eu", "u1"), Owner("ModelReplica", "ml", "qwen-eu-0", "u2")


class SlowPods(IdleCluster):
    """A cluster that lists its pods when it is told to."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.listed: set[str] = set()

    async def list(self, selection: Selection) -> Listing:
        if selection.kind.kind == "Pod":
            await self.told.wait()
        self.listed.add(selection.kind.kind)
        return await super().list(selection)


async def test_w6_an_owner_waits_until_a_new_watch_has_listed_every_kind() -> None:
    cluster, sent = SlowPods(), list[Owner]()

    async def resolve() -> ClusterApi:
        return cluster

    async def send(owner: Owner, observed: Observed) -> bool:
        sent.append(owner)
        return bool(observed)

    async def find_absent(here: frozenset[str]) -> list[Owner]:
        return [] if REPLICA.workflow_id in here else [REPLICA]

    watch = ClusterWatch(CLUSTER, resolve, send, find_absent)
    task = asyncio.create_task(watch.run())
    try:
        # The cluster itself is signalled: what concerns it was listed.
        await eventually(lambda: CLUSTER in sent and {"Node", "Deployment"} <= cluster.listed)
        assert (watch._is_blocked(REPLICA), "Pod" in cluster.listed, REPLICA in sent) == (True, False, False)
        cluster.told.set()
        await eventually(lambda: REPLICA in sent)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
