"""How entities start, find and tell one another.

Everything goes through the worker's own Temporal client, from local activities for one message and from normal ones for many: it leaves
fewer events in a history than signals sent by workflow code. All of it may be done twice, since every message carries a request id, a
sequence number or a uid.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from pydantic import Field
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowQueryFailedError
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from api_types import names, queues
from api_types.base import Message
from api_types.messages.delivery import Broadcast, SignalBatch, SignalBatchResult, SignalRequest
from api_types.messages.entities import StartedReplicas, StartReplica, StartReplicas

KIND = SearchAttributeKey.for_keyword("ModelplaneKind")
NAMESPACE = SearchAttributeKey.for_keyword("ModelplaneNamespace")
NAME = SearchAttributeKey.for_keyword("ModelplaneName")
PHASE = SearchAttributeKey.for_keyword("ModelplanePhase")
READY = SearchAttributeKey.for_keyword("ModelplaneReady")
CLUSTER = SearchAttributeKey.for_keyword("ModelplaneCluster")
DEPLOYMENT = SearchAttributeKey.for_keyword("ModelplaneDeployment")

# Where an InferenceCluster keeps what replicas must know of it.
CONNECTION_MEMO = "connection"

SEARCH_ATTRIBUTES = (KIND, NAMESPACE, NAME, PHASE, READY, CLUSTER, DEPLOYMENT)

# As many as the server answers at once without queueing them behind a busy workflow.
_AT_ONCE = 32
_QUERY_TIMEOUT = timedelta(seconds=5)

# The client repeats a call that a busy server refuses. A local activity must end within the ten seconds that it is given: one that is
# timed out from outside may never be tried again, and its workflow would wait for it for good.
_ASK_SECONDS = 8


class ReadMemo(Message):
    """What to read of which entity's memo."""

    workflow_id: str
    key: str


class Remembered(Message):
    """What a memo holds, None if it has no such key; `found` False when no such entity runs."""

    found: bool
    value: Any = None


class Survey(Message):
    """Find entities in visibility and ask each one the same query.

    Empty fields do not narrow. `query` empty: only the ids are wanted. `after` is the page token of the last answer.
    """

    kinds: list[str]
    namespace: str = ""
    cluster: str = ""
    deployment: str = ""
    query: str = ""
    page_size: int = 500
    after: str = ""


class AskEach(Message):
    """The same query to several entities."""

    workflow_ids: list[str]
    query: str


class Surveyed(Message):
    """The answers by workflow id; `silent` are the ids that gave none in time though they run, with the cluster they are found by."""

    answers: dict[str, Any] = Field(default_factory=dict)
    silent: dict[str, str] = Field(default_factory=dict)
    after: str = ""


def attributes_of(kind: str, namespace: str, name: str, **more: str) -> TypedSearchAttributes:
    """Give the search attributes with which an entity is born."""
    pairs: list[SearchAttributePair[Any]] = [SearchAttributePair(KIND, kind), SearchAttributePair(NAME, name)]
    if namespace:
        pairs.append(SearchAttributePair(NAMESPACE, namespace))
    keys = {"cluster": CLUSTER, "deployment": DEPLOYMENT}
    pairs += [SearchAttributePair(keys[word], value) for word, value in sorted(more.items()) if value]
    return TypedSearchAttributes(pairs)


def visibility_query(kinds: Sequence[str], *, namespace: str = "", cluster: str = "", deployment: str = "") -> str:
    """Write the list filter for running entities."""
    terms = ['ExecutionStatus = "Running"', "ModelplaneKind IN (" + ", ".join(f'"{kind}"' for kind in kinds) + ")"]
    for key, value in ((NAMESPACE, namespace), (CLUSTER, cluster), (DEPLOYMENT, deployment)):
        if value:
            terms.append(f'{key.name} = "{value}"')
    return " AND ".join(terms)


class EntityClient:
    """Activities that carry messages. They need nothing but Temporal."""

    @activity.defn
    async def tell(self, message: SignalRequest) -> bool:
        """Send one signal. False: nobody of that id is running. The scheduler is started if it is not."""
        return await _tell(activity.client(), message)

    @activity.defn
    async def tell_many(self, messages: SignalBatch) -> SignalBatchResult:
        """Send many signals, in order for each receiver, different receivers side by side."""
        by_receiver: dict[str, list[SignalRequest]] = {}
        for message in messages.signals:
            by_receiver.setdefault(message.workflow_id, []).append(message)
        client = activity.client()
        gate = asyncio.Semaphore(_AT_ONCE)

        async def send(row: list[SignalRequest]) -> bool:
            async with gate:
                return all([await _tell(client, message) for message in row])

        told = await asyncio.gather(*(send(row) for row in by_receiver.values()))
        return SignalBatchResult(missing=[receiver for receiver, ok in zip(by_receiver, told, strict=True) if not ok])

    @activity.defn
    async def read_memo(self, wanted: ReadMemo) -> Remembered:
        """Read what a running entity keeps in its memo.

        The server answers by itself. A query would need a free workflow task slot of some worker; hundreds of replicas that are born at
        once and all query their cluster would hold those slots, and wait for one another. Raises TimeoutError after eight seconds.
        """
        async with asyncio.timeout(_ASK_SECONDS):
            try:
                seen = await activity.client().get_workflow_handle(wanted.workflow_id).describe()
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    return Remembered(found=False)
                raise
            if seen.status != WorkflowExecutionStatus.RUNNING:
                return Remembered(found=False)
            return Remembered(found=True, value=await seen.memo_value(wanted.key, None))

    @activity.defn
    async def start_replicas(self, order: StartReplicas) -> StartedReplicas:
        """Start the workflows of replicas. One that runs under the same uid is left alone; another uid is a conflict."""
        client = activity.client()
        gate = asyncio.Semaphore(_AT_ONCE)

        async def start(birth: StartReplica) -> str:
            async with gate, asyncio.timeout(_ASK_SECONDS):
                return await _start_replica(client, birth)

        names_held = await asyncio.gather(*(start(birth) for birth in order.replicas))
        return StartedReplicas(conflicts=[name for name in names_held if name])

    @activity.defn
    async def survey(self, order: Survey) -> Surveyed:
        """Ask one page of the running entities of some kinds; those that do not answer in time are named, never left out."""
        client = activity.client()
        listing = client.list_workflows(
            visibility_query(order.kinds, namespace=order.namespace, cluster=order.cluster, deployment=order.deployment),
            page_size=order.page_size,
            next_page_token=bytes.fromhex(order.after) or None,
        )
        await listing.fetch_next_page()
        found = {row.id: str(row.typed_search_attributes.get(CLUSTER) or "") for row in listing.current_page or ()}
        after = (listing.next_page_token or b"").hex()
        if not order.query:
            return Surveyed(answers=dict.fromkeys(found), after=after)
        answers, silent = await _ask_each(client, list(found), order.query)
        return Surveyed(answers=answers, silent={workflow_id: found[workflow_id] for workflow_id in silent}, after=after)

    @activity.defn
    async def ask_each(self, order: AskEach) -> Surveyed:
        """Ask several entities; who does not run any more is in neither list."""
        client = activity.client()
        answers, silent = await _ask_each(client, order.workflow_ids, order.query)
        running: dict[str, str] = {}
        for workflow_id in silent:
            try:
                description = await client.get_workflow_handle(workflow_id).describe()
            except RPCError as error:
                if error.status != RPCStatusCode.NOT_FOUND:
                    raise
                continue
            if description.status == WorkflowExecutionStatus.RUNNING:
                running[workflow_id] = str(description.typed_search_attributes.get(CLUSTER) or "")
        return Surveyed(answers=answers, silent=running)

    @activity.defn
    async def broadcast(self, order: Broadcast) -> int:
        """Send one signal to everybody found; gives how many heard it."""
        client = activity.client()
        gate = asyncio.Semaphore(_AT_ONCE)

        async def send(workflow_id: str) -> bool:
            async with gate:
                return await _tell(client, SignalRequest(workflow_id=workflow_id, signal=order.signal, payload=order.payload))

        ids = [workflow_id async for workflow_id in _running(client, order.kinds, namespace=order.namespace, cluster=order.cluster)]
        return sum(await asyncio.gather(*(send(workflow_id) for workflow_id in ids)))


async def ensure_scheduler(client: Client, signal: SignalRequest | None = None) -> None:
    """Start the one FleetScheduler if it does not run, and give it a signal on the way."""
    message: Mapping[str, Any] = {"start_signal": signal.signal, "start_signal_args": [signal.payload]} if signal else {}
    await client.start_workflow(
        "FleetScheduler",
        None,
        id=names.FLEET_SCHEDULER_ID,
        task_queue=queues.SCHEDULER,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        search_attributes=attributes_of("FleetScheduler", "", "default"),
        static_summary="FleetScheduler default",
        **message,
    )


async def _tell(client: Client, message: SignalRequest) -> bool:
    async with asyncio.timeout(_ASK_SECONDS):
        if message.workflow_id == names.FLEET_SCHEDULER_ID:
            await ensure_scheduler(client, message)
            return True
        try:
            await client.get_workflow_handle(message.workflow_id).signal(message.signal, message.payload)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise
        return True


async def _ask_each(client: Client, workflow_ids: Sequence[str], query: str) -> tuple[dict[str, Any], list[str]]:
    """Give the answers by id, in order, and the ids that gave none in time."""
    answers: dict[str, Any] = {}
    silent: list[str] = []
    gate = asyncio.Semaphore(_AT_ONCE)

    async def put_question(workflow_id: str) -> None:
        async with gate:
            try:
                answers[workflow_id] = await client.get_workflow_handle(workflow_id).query(query, rpc_timeout=_QUERY_TIMEOUT)
            except (RPCError, WorkflowQueryFailedError):
                silent.append(workflow_id)

    await asyncio.gather(*(put_question(workflow_id) for workflow_id in workflow_ids))
    return {workflow_id: answers[workflow_id] for workflow_id in sorted(answers)}, sorted(silent)


async def _start_replica(client: Client, birth: StartReplica) -> str:
    workflow_id = names.workflow_id("ModelReplica", birth.namespace, birth.name)
    try:
        await client.start_workflow(
            "ModelReplica",
            {"birth": birth.wire()},
            id=workflow_id,
            task_queue=queues.WORKFLOWS,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            memo={"uid": birth.uid},
            search_attributes=attributes_of(
                "ModelReplica", birth.namespace, birth.name, cluster=birth.cluster, deployment=birth.deployment
            ),
            static_summary=f"ModelReplica {birth.namespace}/{birth.name} on {birth.cluster}",
        )
    except WorkflowAlreadyStartedError:
        description = await client.get_workflow_handle(workflow_id).describe()
        if await description.memo_value("uid", "") != birth.uid:
            return birth.name
    return ""


async def _running(client: Client, kinds: Sequence[str], *, namespace: str = "", cluster: str = "") -> AsyncIterator[str]:
    async for row in client.list_workflows(visibility_query(kinds, namespace=namespace, cluster=cluster)):
        yield row.id
