"""The simulated cluster instead of a real one, for tests of the requests of activities."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast
from unittest import mock

from activities.clients.kubernetes.pool import KubernetesPool
from activities.clients.secrets.directory import SecretDirectory
from activities.cluster_objects import deletion
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    ClusterPool,
    Json,
    ObjectId,
)
from api_types.messages.cluster_work import Connection
from tests.activities.environment.cluster_under_test import ClusterUnderTest
from tests.simulation import kinds
from tests.simulation.cluster import ApiServer, ClusterClient
from tests.simulation.reconciling import ClusterBehaviour
from tests.simulation.store import ObjectKey

_LONGEST_SECONDS = 0.02
# The longest delay of a simulation's controllers and kubelet. A watch lasts longer.
_LONGEST_DELAY_SECONDS = 300.0
# The first and the longest pause between two checks of deleted objects.
_POLL_SECONDS = (0.01, 0.05)
_SOON = (0.0, _LONGEST_SECONDS)
QUICK = ClusterBehaviour(
    reaction=_SOON,
    start=_SOON,
    ready=_SOON,
    end=_SOON,
    bind=_SOON,
    job=_SOON,
    gateway=_SOON,
    address=_SOON,
    removal=_SOON,
)
NAME, POOLS = "prod-eu", ("h100", "l40s")


class ShortDelays(random.Random):
    """Draws short delays, also delays without a setting in `ClusterBehaviour`.

    The simulated kubelet looks again after 1 to 5 seconds at a pod that still has a finalizer.
    Watches last as long as in a simulation.
    """

    def uniform(self, a: float, b: float) -> float:
        drawn = super().uniform(a, b)
        return drawn if a > _LONGEST_DELAY_SECONDS else min(drawn, _LONGEST_SECONDS)


class OneCluster(ClusterPool):
    """Gives the same simulated cluster for every connection."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self._client = ClusterClient(server)

    async def at(self, connection: Connection) -> ClusterApi:
        del connection
        return self._client

    async def close(self) -> None:
        """No connection is open."""


@asynccontextmanager
async def cluster_in_memory(folder: Path) -> AsyncIterator[ClusterUnderTest]:
    """Run a cluster with a serving stack's kinds, a volume class and two pools."""
    server = ApiServer(NAME, ShortDelays(1), pause=_no_pause, behaviour=QUICK)
    server.serve(*kinds.STACK)
    server.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "testbed-rwx"},
            "provisioner": "sim",
        }
    )
    for pool in POOLS:
        server.set_nodes(pool, 4)
    connection = Connection(
        cluster=NAME, namespace="modelplane-system", name=f"{NAME}-kubeconfig"
    )
    made = ClusterUnderTest(
        NAME,
        connection,
        SecretDirectory(folder),
        cast("KubernetesPool", OneCluster(server)),
    )
    made.facts = (await made.connect()).model_copy(update={"routing": "service"})
    with mock.patch.object(deletion, "_POLL_SECONDS", _POLL_SECONDS):
        yield made
    server.stop()


async def patch(cluster: ClusterUnderTest, target: ObjectId, change: Json) -> None:
    """Merge a patch into an object like a user with kubectl."""
    pool = cast("OneCluster", cast("ClusterPool", cluster.pool))
    store, key, metadata = (
        pool.server.store,
        ObjectKey.of(target),
        change.get("metadata", {}),
    )
    if "finalizers" in metadata:
        store.set_finalizers(key, metadata["finalizers"] or [])
    store.edit(key, lambda content: _merged(content, change))


def _merged(content: Json, change: Json) -> Json:
    """Apply a merge patch (RFC 7396)."""
    found = dict(content)
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = (
                _merged(found.get(key) or {}, value)
                if isinstance(value, dict)
                else value
            )
    return found


async def _no_pause(low: float, high: float) -> None:
    """Requests take no time."""
    del low, high
    await asyncio.sleep(0)
