"""Notify deployments of replicas whose workflows were terminated or failed.

No other message notifies them: the objects of such a replica keep serving. A notified
deployment checks its replicas itself, so late or repeated messages have no effect. If
no message arrives, its hourly resync has the same result.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import structlog
from temporalio.client import Client
from temporalio.service import RPCError

from activities.messaging.lookups import first_run
from activities.messaging.search_attributes import (
    CLUSTER,
    DEPLOYMENT,
    NAMESPACE,
    closed_query,
)
from activities.messaging.sending import send_signal
from api_types.clock import timestamp, utc_now
from api_types.messages.delivery import entity
from api_types.messages.entities import CheckReplicas
from api_types.messages.signals import ModelDeploymentSignals

CHECK_SECONDS = 15.0
# One listing serves the watches of all clusters of a worker.
LISTING_SECONDS = 10.0
# The age up to which closed workflows are listed. Visibility lags by seconds. A
# deployment that cannot start its replica is notified again in the meantime.
LOOK_BACK = timedelta(minutes=15)
# The first and the longest pause between reports of a replica whose workflow keeps
# closing.
REPEAT_SECONDS = (60.0, 3600.0)

Call = Callable[[str], None]

log = structlog.get_logger("modelplane.closed_replicas")


class ClosedReplica(NamedTuple):
    """A run of a ModelReplica that was terminated or failed."""

    run_id: str
    workflow_id: str
    cluster: str
    namespace: str
    deployment: str


class ClosedReplicas:
    """The closed replicas that visibility lists, cached for all clusters of a worker."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._listed: list[ClosedReplica] = []
        self._listed_at = float("-inf")

    async def on_cluster(self, client: Client, cluster: str) -> list[ClosedReplica]:
        """Return the closed replicas on a cluster. Raises RPCError."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now - self._listed_at >= LISTING_SECONDS:
                self._listed = await _list(client)
                self._listed_at = now
        return [found for found in self._listed if found.cluster == cluster]


class DeploymentNotifier:
    """Notifies deployments of the closed replicas on one cluster.

    `repeat` is called with the workflow id once per closed run, because the next run
    has the same uid and no observation.
    """

    def __init__(
        self, closed: ClosedReplicas, client: Client, cluster: str, repeat: Call
    ) -> None:
        self._closed = closed
        self._client = client
        self._cluster = cluster
        self._repeat = repeat
        self._known: frozenset[str] = frozenset()
        # By workflow id: when the replica may be reported again, and the pause after
        # that.
        self._next: dict[str, tuple[float, float]] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.notify()
            except (RPCError, TimeoutError) as error:
                log.warning(
                    "could not list terminated replicas; the next listing retries",
                    cluster=self._cluster,
                    error=str(error),
                )

    async def notify(self) -> None:
        """List closed replicas once and notify. Raises RPCError and TimeoutError."""
        closed = await self._closed.on_cluster(self._client, self._cluster)
        for found in closed:
            if found.run_id not in self._known:
                self._repeat(found.workflow_id)
        self._known = frozenset(found.run_id for found in closed)
        now = asyncio.get_running_loop().time()
        due = {
            found.workflow_id: found
            for found in closed
            if self._next.get(found.workflow_id, (now, 0.0))[0] <= now
        }
        lost = [
            found
            for workflow_id, found in sorted(due.items())
            if not await first_run(self._client, workflow_id)
        ]
        deployments = {(found.namespace, found.deployment) for found in lost}
        for namespace, deployment in sorted(deployments):
            check = ModelDeploymentSignals.CHECK_REPLICAS.request(
                entity(ModelDeploymentSignals, namespace, deployment), CheckReplicas()
            )
            try:
                await send_signal(self._client, check)
            except (RPCError, TimeoutError) as error:
                # This deployment is notified again after its pause, and the other
                # deployments need not wait for it.
                log.warning(
                    "could not notify a deployment of terminated replicas; will retry",
                    deployment=f"{namespace}/{deployment}",
                    error=str(error),
                )
        shortest, longest = REPEAT_SECONDS
        for found in lost:
            pause = self._next.get(found.workflow_id, (now, shortest))[1]
            self._next[found.workflow_id] = now + pause, min(2 * pause, longest)
        self._next = {
            each: (at, pause)
            for each, (at, pause) in self._next.items()
            if at + longest > now
        }


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
