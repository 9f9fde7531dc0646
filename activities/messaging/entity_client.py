"""The activities with which workflows reach other entities. They need nothing but Temporal."""

import asyncio

from temporalio import activity

from activities.messaging import querying
from activities.messaging.messages import MemoValue, QueryEach, ReadMemo, Survey, SurveyResult
from activities.messaging.sending import CALL_SECONDS, CALLS_AT_ONCE, running, send_signal, send_signals, start_replica
from api_types.messages.delivery import Broadcast, SignalBatch, SignalBatchResult, SignalRequest
from api_types.messages.entities import StartedReplicas, StartReplica, StartReplicas


class EntityClient:
    """Signals, queries and starts; some activity names on the wire are older than the methods."""

    @activity.defn(name="tell")
    async def signal(self, request: SignalRequest) -> bool:
        """Send one signal; False when its receiver does not run. The scheduler is started if it does not."""
        return await send_signal(activity.client(), request)

    @activity.defn(name="tell_many")
    async def signal_many(self, batch: SignalBatch) -> SignalBatchResult:
        """Send many signals, in order for each receiver, to different receivers at the same time."""
        return SignalBatchResult(missing=await send_signals(activity.client(), batch.signals))

    @activity.defn
    async def broadcast(self, wanted: Broadcast) -> int:
        """Send one signal to all entities found; gives how many received it."""
        client = activity.client()
        slots = asyncio.Semaphore(CALLS_AT_ONCE)

        async def send(workflow_id: str) -> bool:
            async with slots:
                return await send_signal(client, SignalRequest(workflow_id=workflow_id, signal=wanted.signal, payload=wanted.payload))

        ids = [workflow_id async for workflow_id in running(client, wanted.kinds, namespace=wanted.namespace, cluster=wanted.cluster)]
        return sum(await asyncio.gather(*(send(workflow_id) for workflow_id in ids)))

    @activity.defn
    async def start_replicas(self, wanted: StartReplicas) -> StartedReplicas:
        """Start the workflows of replicas. One that runs already with the same uid is left as it is; another uid is a conflict."""
        client = activity.client()
        slots = asyncio.Semaphore(CALLS_AT_ONCE)

        async def start(replica: StartReplica) -> str:
            async with slots, asyncio.timeout(CALL_SECONDS):
                return await start_replica(client, replica)

        conflicts = await asyncio.gather(*(start(replica) for replica in wanted.replicas))
        return StartedReplicas(conflicts=[name for name in conflicts if name])

    @activity.defn
    async def survey(self, wanted: Survey) -> SurveyResult:
        """Query one page of the running entities of some kinds; those that do not answer in time are named, never left out."""
        return await querying.survey(activity.client(), wanted)

    @activity.defn(name="ask_each")
    async def query_each(self, wanted: QueryEach) -> SurveyResult:
        """Query several entities; those that do not run any more are in neither list."""
        return await querying.query_each(activity.client(), wanted.workflow_ids, wanted.query)

    @activity.defn
    async def read_memo(self, wanted: ReadMemo) -> MemoValue:
        """Read a key of a running entity's memo. Raises `TimeoutError` after eight seconds.

        The server answers this itself. A query would need a workflow task slot of some worker: hundreds of replicas that start at once and
        all query their cluster would take those slots, and wait for one another.
        """
        return await querying.read_memo(activity.client(), wanted.workflow_id, wanted.key)
