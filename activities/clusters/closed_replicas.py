"""Replicas whose workflows were terminated, or failed: their deployments are told to check them.

Nothing else would say so: what such a replica applied goes on serving, and no message is due to it. A deployment that is told checks by
itself, so a message that is late or repeated changes nothing. Its resync does the same every hour, should the message not be sent.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import structlog
from temporalio.client import Client
from temporalio.service import RPCError

from activities.messaging.querying import first_run
from activities.messaging.search_attributes import CLUSTER, DEPLOYMENT, NAMESPACE, closed_query
from activities.messaging.sending import send_signal
from api_types.clock import timestamp, utc_now
from api_types.messages.delivery import entity
from api_types.messages.entities import CheckReplicas
from api_types.messages.signals import ModelDeploymentSignals

CHECK_SECONDS = 15.0
# One listing serves the watches of all clusters of a worker.
LISTING_SECONDS = 10.0
# How far back is looked. Visibility lags by seconds; a deployment that could not start its replica is told again meanwhile.
LOOK_BACK = timedelta(minutes=15)
# A replica whose workflow ends again and again is reported ever more rarely.
REPEAT_SECONDS = (60.0, 3600.0)

Call = Callable[[str], None]

log = structlog.get_logger("modelplane.closed_replicas")


class ClosedReplica(NamedTuple):
    """A run of a ModelReplica that did not end by itself."""

    run_id: str
    workflow_id: str
    cluster: str
    namespace: str
    deployment: str


class ClosedReplicas:
    """What visibility lists of them, for all clusters of a worker."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._listed: list[ClosedReplica] = []
        self._listed_at = float("-inf")

    async def on_cluster(self, client: Client, cluster: str) -> list[ClosedReplica]:
        """Give those on a cluster. Raises RPCError."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now - self._listed_at >= LISTING_SECONDS:
                self._listed = await _list(client)
                self._listed_at = now
        return [found for found in self._listed if found.cluster == cluster]


class DeploymentNotifier:
    """Tells deployments of the closed replicas on one cluster.

    `repeat` is called once for each closed run, with the workflow id: the next run has the same
    uid, and no observation.
    """

    def __init__(self, closed: ClosedReplicas, client: Client, cluster: str, repeat: Call) -> None:
        self._closed = closed
        self._client = client
        self._cluster = cluster
        self._repeat = repeat
        self._known: frozenset[str] = frozenset()
        # When each may be reported again, and after which pause the time after that.
        self._next: dict[str, tuple[float, float]] = {}

    async def run(self) -> None:
        """Notify them until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.notify()
            except (RPCError, TimeoutError) as error:
                log.warning("terminated replicas were not looked for", cluster=self._cluster, error=str(error))

    async def notify(self) -> None:
        """Look for closed replicas once. Raises RPCError and TimeoutError."""
        closed = await self._closed.on_cluster(self._client, self._cluster)
        for found in closed:
            if found.run_id not in self._known:
                self._repeat(found.workflow_id)
        self._known = frozenset(found.run_id for found in closed)
        now = asyncio.get_running_loop().time()
        due = {found.workflow_id: found for found in closed if self._next.get(found.workflow_id, (now, 0.0))[0] <= now}
        lost = [found for workflow_id, found in sorted(due.items()) if not await first_run(self._client, workflow_id)]
        for namespace, deployment in sorted({(found.namespace, found.deployment) for found in lost}):
            check = ModelDeploymentSignals.CHECK_REPLICAS.request(entity(ModelDeploymentSignals, namespace, deployment), CheckReplicas())
            try:
                await send_signal(self._client, check)
            except (RPCError, TimeoutError) as error:
                # It is told again with its next turn, and the others need not wait for it.
                log.warning("a deployment was not told of terminated replicas", deployment=f"{namespace}/{deployment}", error=str(error))
        shortest, longest = REPEAT_SECONDS
        for found in lost:
            pause = self._next.get(found.workflow_id, (now, shortest))[1]
            self._next[found.workflow_id] = now + pause, min(2 * pause, longest)
        self._next = {each: (at, pause) for each, (at, pause) in self._next.items() if at + longest > now}


async def _list(client: Client) -> list[ClosedReplica]:
    query = closed_query("ModelReplica", timestamp(utc_now() - LOOK_BACK))
    return [
        ClosedReplica(
            row.run_id,
            row.id,
            str(row.typed_search_attributes.get(CLUSTER) or ""),
            str(row.typed_search_attributes.get(NAMESPACE) or ""),
            str(row.typed_search_attributes.get(DEPLOYMENT) or ""),
        )
        async for row in client.list_workflows(query)
    ]
