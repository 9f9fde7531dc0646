"""A watch over a cluster that stands in place of a real one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from activities.cluster_objects.cluster_api import ClusterApi
from activities.cluster_objects.ownership import Owner
from activities.clusters.watch.cluster_watch import ClusterWatch
from activities.watching.notifier import Send
from api_types.messages.observations import Observed
from tests.environment.background import in_background


@asynccontextmanager
async def watching(cluster: ClusterApi, owner: Owner, send: Send[Observed]) -> AsyncIterator[ClusterWatch]:
    """Watch a cluster, whose entity is `owner`; what its watch ends with is raised."""

    async def resolve() -> ClusterApi:
        return cluster

    async def find_absent(here: frozenset[str]) -> AsyncIterator[Owner]:
        for _ in here - here:
            yield owner

    watch = ClusterWatch(owner, resolve, send, find_absent)
    async with in_background(watch.run()):
        yield watch
