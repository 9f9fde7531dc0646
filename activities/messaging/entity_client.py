"""The activities with which workflows access other entities.

They need only the Temporal client.
"""

import contextlib
from collections.abc import AsyncIterator

from temporalio import activity

from activities.heartbeat import heartbeating
from activities.messaging import lookups, querying
from activities.messaging.delivering import broadcast, deliver, redeliver
from activities.messaging.messages import (
    AwaitRunning,
    CheckReceivers,
    CountEntities,
    EntityCount,
    MemoValue,
    QueryEach,
    ReadMemo,
    ReceiverChanges,
    Survey,
    SurveyResult,
)
from activities.messaging.sending import start_replicas
from api_types.errors import NotRunning
from api_types.messages.delivery import (
    Broadcast,
    Redelivered,
    SignalBatch,
    SignalBatchResult,
    SignalRequest,
)
from api_types.messages.entities import StartedReplicas, StartReplicas

# When a worker is killed, its batch is sent again after its heartbeats are missing for
# this time. Senders wait no longer than that.
_HEARTBEAT_SECONDS = 3.0


@contextlib.asynccontextmanager
async def _heartbeats() -> AsyncIterator[None]:
    """Send heartbeats while the body runs, except in a local activity.

    A local activity ends with the workflow task that runs it.
    """
    if activity.info().is_local:
        yield
        return
    async with heartbeating(_HEARTBEAT_SECONDS):
        yield


class EntityClient:
    """Signals, queries and starts of entities.

    Some activity names on the wire are older than the methods.
    """

    @activity.defn(name="tell")
    async def signal(self, request: SignalRequest) -> bool:
        """Send one signal.

        Returns False if its receiver does not run. The scheduler is started if it does
        not run.
        """
        return not await deliver(activity.client(), [request])

    @activity.defn(name="tell_many")
    async def signal_many(self, batch: SignalBatch) -> SignalBatchResult:
        """Send many signals: in order for each receiver, concurrently to receivers."""
        async with _heartbeats():
            return SignalBatchResult(
                missing=await deliver(activity.client(), batch.signals)
            )

    @activity.defn
    async def redeliver(self, batch: SignalBatch) -> Redelivered:
        """Send refused signals to their receiver again, until the first refusal."""
        async with _heartbeats():
            return await redeliver(activity.client(), batch.signals)

    @activity.defn
    async def broadcast(self, wanted: Broadcast) -> int:
        """Send one signal to all matching entities, and return their number."""
        async with heartbeating(_HEARTBEAT_SECONDS) as report:
            return await broadcast(activity.client(), wanted, report)

    @activity.defn
    async def start_replicas(self, wanted: StartReplicas) -> StartedReplicas:
        """Start the workflows of replicas.

        A workflow that runs with the same uid is not changed, and a completed one is
        not started again. Another uid of the same name is a conflict if its workflow
        runs, or if it was terminated: only a run with that uid can delete the objects
        that it has applied.
        """
        async with _heartbeats():
            return await start_replicas(activity.client(), wanted.replicas)

    @activity.defn
    async def survey(self, wanted: Survey) -> SurveyResult:
        """Query one page of the running entities of some kinds.

        Entities that do not respond in time are listed as unresponsive.
        """
        async with _heartbeats():
            return await querying.survey(activity.client(), wanted)

    @activity.defn(name="ask_each")
    async def query_each(self, wanted: QueryEach) -> SurveyResult:
        """Query several entities.

        The result does not contain entities that no longer run.
        """
        async with _heartbeats():
            return await querying.query_each(
                activity.client(), wanted.workflow_ids, wanted.query
            )

    @activity.defn
    async def read_memo(self, wanted: ReadMemo) -> MemoValue:
        """Read a key of an entity's memo.

        Raises `TimeoutError` after eight seconds. The server responds itself. A query
        would need a workflow task slot of a worker: hundreds of replicas that start at
        once and query their cluster would occupy all slots and wait for each other.
        """
        return await lookups.read_memo(
            activity.client(), wanted.workflow_id, wanted.key
        )

    @activity.defn
    async def count_entities(self, wanted: CountEntities) -> EntityCount:
        """Count the running entities of a kind in visibility."""
        return await lookups.count_entities(activity.client(), wanted.kind)

    @activity.defn
    async def check_receivers(self, wanted: CheckReceivers) -> ReceiverChanges:
        """Find entities that do not run, or have another first run than before.

        The server responds itself, without a worker.
        """
        return await lookups.check_receivers(activity.client(), wanted)

    @activity.defn
    async def await_running(self, wanted: AwaitRunning) -> str:
        """Return the first run of a running entity.

        Raises NotRunning if it does not run, so that Temporal retries.
        """
        found = await lookups.first_run(activity.client(), wanted.workflow_id)
        if not found:
            raise NotRunning(f"{wanted.workflow_id} does not run")
        return found
