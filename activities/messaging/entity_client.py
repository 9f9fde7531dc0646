"""The activities with which workflows reach other entities. They need nothing but Temporal."""

import contextlib
from collections.abc import AsyncIterator

from temporalio import activity

from activities.heartbeat import heartbeating
from activities.messaging import querying
from activities.messaging.delivering import broadcast, deliver, redeliver
from activities.messaging.messages import (
    AwaitRunning,
    CheckReceivers,
    MemoValue,
    QueryEach,
    ReadMemo,
    ReceiverChanges,
    Survey,
    SurveyResult,
)
from activities.messaging.sending import start_replicas
from api_types.errors import NotRunning
from api_types.messages.delivery import Broadcast, Redelivered, SignalBatch, SignalBatchResult, SignalRequest
from api_types.messages.entities import StartedReplicas, StartReplicas

# A batch whose worker was killed is sent again when its heartbeats are missing: whoever waits for it waits no longer than that.
_HEARTBEAT_SECONDS = 3.0


@contextlib.asynccontextmanager
async def _heartbeats() -> AsyncIterator[None]:
    """Send heartbeats while the body runs, unless it is a local activity: a local one is lost with the task of its workflow."""
    if activity.info().is_local:
        yield
        return
    async with heartbeating(_HEARTBEAT_SECONDS):
        yield


class EntityClient:
    """Signals, queries and starts; some activity names on the wire are older than the methods."""

    @activity.defn(name="tell")
    async def signal(self, request: SignalRequest) -> bool:
        """Send one signal; False when its receiver does not run. The scheduler is started if it does not."""
        return not await deliver(activity.client(), [request])

    @activity.defn(name="tell_many")
    async def signal_many(self, batch: SignalBatch) -> SignalBatchResult:
        """Send many signals, in order for each receiver, to different receivers at the same time."""
        async with _heartbeats():
            return SignalBatchResult(missing=await deliver(activity.client(), batch.signals))

    @activity.defn
    async def redeliver(self, batch: SignalBatch) -> Redelivered:
        """Send signals again that their one receiver did not take, up to the first that it does not take this time."""
        async with _heartbeats():
            return await redeliver(activity.client(), batch.signals)

    @activity.defn
    async def broadcast(self, wanted: Broadcast) -> int:
        """Send one signal to all entities found; gives how many there are."""
        async with heartbeating(_HEARTBEAT_SECONDS) as report:
            return await broadcast(activity.client(), wanted, report)

    @activity.defn
    async def start_replicas(self, wanted: StartReplicas) -> StartedReplicas:
        """Start the workflows of replicas. One that runs already with the same uid is left as it is; another uid is a conflict.

        So is another uid that was terminated: only a run of that one can delete what it has applied. One that is complete is not started
        again.
        """
        async with _heartbeats():
            return await start_replicas(activity.client(), wanted.replicas)

    @activity.defn
    async def survey(self, wanted: Survey) -> SurveyResult:
        """Query one page of the running entities of some kinds; those that do not answer in time are named, never left out."""
        async with _heartbeats():
            return await querying.survey(activity.client(), wanted)

    @activity.defn(name="ask_each")
    async def query_each(self, wanted: QueryEach) -> SurveyResult:
        """Query several entities; those that do not run any more are in no list."""
        async with _heartbeats():
            return await querying.query_each(activity.client(), wanted.workflow_ids, wanted.query)

    @activity.defn
    async def read_memo(self, wanted: ReadMemo) -> MemoValue:
        """Read a key of an entity's memo. Raises `TimeoutError` after eight seconds.

        The server answers this itself. A query would need a workflow task slot of some worker: hundreds of replicas that start at once and
        all query their cluster would take those slots, and wait for one another.
        """
        return await querying.read_memo(activity.client(), wanted.workflow_id, wanted.key)

    @activity.defn
    async def check_receivers(self, wanted: CheckReceivers) -> ReceiverChanges:
        """Find out which entities still run, and which were started anew; the server answers this itself, without any worker."""
        return await querying.check_receivers(activity.client(), wanted)

    @activity.defn
    async def await_running(self, wanted: AwaitRunning) -> str:
        """Give the first run of an entity that runs. Raises NotRunning, so that Temporal tries again."""
        found = await querying.first_run(activity.client(), wanted.workflow_id)
        if not found:
            raise NotRunning(f"{wanted.workflow_id} does not run")
        return found
