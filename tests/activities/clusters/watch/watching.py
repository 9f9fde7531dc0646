"""A watch over a fake cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from activities.cluster_objects.cluster_api import ClusterApi
from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.watch.cluster_watch import ClusterWatch
from activities.watching.notifier import Send
from api_types.messages.observations import Observed
from tests.environment.background import in_background


@asynccontextmanager
async def watching(
    cluster: ClusterApi, owner: ObjectOwner, send: Send[Observed]
) -> AsyncIterator[ClusterWatch]:
    """Watch a cluster with entity `owner`. Errors of the watch are raised."""

    async def resolve() -> ClusterApi:
        return cluster

    async def find_absent(here: frozenset[str]) -> AsyncIterator[ObjectOwner]:
        for _ in here - here:
            yield owner

    watch = ClusterWatch(owner, resolve, send, find_absent)
    async with in_background(watch.run()):
        yield watch
