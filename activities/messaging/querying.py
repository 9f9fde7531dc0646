"""Query many entities.

An entity that does not respond may have no worker at the moment, so it is listed as
unresponsive and never left out. A response must fit into a payload, and the activity
must end whatever the number of entities and unresponsive entities. So a round of
queries ends when its responses fill a payload or its time is up. The result lists the
entities that it did not reach, for the next round.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.messaging.messages import (
    CheckReceivers,
    EntityCount,
    MemoValue,
    ReceiverChanges,
    Survey,
    SurveyResult,
)
from activities.messaging.search_attributes import (
    CLUSTER,
    unknown_query,
    visibility_query,
)
from activities.messaging.sending import (
    CALL_SECONDS,
    CALLS_AT_ONCE,
    DECODING_ERRORS,
)
from api_types.messages.delivery import SignalRequest
from api_types.payloads.limits import LIST_BYTES_MAX, wire_size

# A query that takes longer gives up its slot, so that an entity without a worker does
# not delay later entities.
SLOT_SECONDS = 0.5
# If there is no response for this time, no other entity will respond: workers that
# replay many histories respond to one query after another.
QUIET_SECONDS = 5.0
# The same limit for a quick survey. It is shorter, because a late entity reports to the
# sender later.
QUICK_SECONDS = 1.0
# After this time a round starts no more queries, and after twice this time it ends.
ROUND_SECONDS = 15.0
_TICK_SECONDS = 0.5


@dataclass
class QueryResults:
    """The result of a round of queries.

    `by_id` has the responses in order of the ids. `unresponsive` did not respond in
    time, `missing` do not exist, and `left` were not queried yet.
    """

    by_id: dict[str, Any] = field(default_factory=dict)
    unresponsive: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


class _Round:
    """One round of queries."""

    def __init__(
        self,
        client: Client,
        query: str,
        size: Callable[[Any], int],
        before: Mapping[str, SignalRequest],
        quiet_seconds: float,
        *,
        argument: str,
    ) -> None:
        self._client = client
        self._query = query
        self._arguments = [argument] if argument else []
        self._size = size
        self._before = before
        self._quiet_seconds = quiet_seconds
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._ends = time.monotonic() + ROUND_SECONDS
        self._bytes = 0
        self._begun: set[str] = set()
        self._last = time.monotonic()
        self._answers: dict[str, Any] = {}
        self._missing: list[str] = []

    async def run(self, workflow_ids: Sequence[str]) -> QueryResults:
        tasks = {
            asyncio.create_task(self._ask(workflow_id)): workflow_id
            for workflow_id in workflow_ids
        }
        waiting = set(tasks)
        try:
            while waiting and not self._is_over(len(workflow_ids)):
                done, waiting = await asyncio.wait(
                    waiting, timeout=_TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        known = self._answers.keys() | set(self._missing)
        answered = [each for each in workflow_ids if each in self._answers]
        kept = self._those_that_fit(answered)
        return QueryResults(
            by_id=kept,
            unresponsive=[
                workflow_id
                for workflow_id in workflow_ids
                if workflow_id in self._begun and workflow_id not in known
            ],
            missing=self._missing,
            left=[
                workflow_id
                for workflow_id in workflow_ids
                if workflow_id not in self._begun
                or (workflow_id in self._answers and workflow_id not in kept)
            ],
        )

    def _those_that_fit(self, answered: Sequence[str]) -> dict[str, Any]:
        """Return the first responses that fit into a payload.

        Responses that arrive when the payload is already full may exceed it.
        """
        kept: dict[str, Any] = {}
        total = 0
        for workflow_id in answered:
            total += self._size(self._answers[workflow_id])
            if kept and total > LIST_BYTES_MAX:
                break
            kept[workflow_id] = self._answers[workflow_id]
        return kept

    def _is_over(self, wanted: int) -> bool:
        now = time.monotonic()
        all_queried = len(self._begun) == wanted or self._is_full()
        quiet = now - self._last > self._quiet_seconds
        return (all_queried and quiet) or now > self._ends + ROUND_SECONDS

    def _is_full(self) -> bool:
        return self._bytes > LIST_BYTES_MAX // 2 or time.monotonic() > self._ends

    async def _ask(self, workflow_id: str) -> None:
        async with self._slots:
            if self._is_full():
                return
            self._begun.add(workflow_id)
            self._last = time.monotonic()
            call = asyncio.create_task(self._call(workflow_id))
            try:
                await asyncio.wait({call}, timeout=SLOT_SECONDS)
            except asyncio.CancelledError:
                call.cancel()
                raise
        await call

    async def _call(self, workflow_id: str) -> None:
        handle = self._client.get_workflow_handle(workflow_id)
        try:
            signal = self._before.get(workflow_id)
            if signal:
                await handle.signal(signal.signal, signal.payload)
            timeout = timedelta(seconds=2 * ROUND_SECONDS)
            answer = await handle.query(
                self._query, args=self._arguments, rpc_timeout=timeout
            )
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                self._missing.append(workflow_id)
            return
        except WorkflowQueryFailedError:
            return
        except DECODING_ERRORS as error:
            activity.logger.warning(
                "the answer of %s cannot be decoded: %s", workflow_id, error
            )
            return
        self._last = time.monotonic()
        self._bytes += self._size(answer)
        self._answers[workflow_id] = answer


async def query_round(
    client: Client,
    workflow_ids: Sequence[str],
    query: str,
    *,
    size: Callable[[Any], int] = wire_size,
    before: Mapping[str, SignalRequest] | None = None,
    quiet_seconds: float = QUIET_SECONDS,
    argument: str = "",
) -> QueryResults:
    """Query entities until their responses fill a payload or the round's time is up.

    `size` returns the number of bytes of a response in the payload. `before` maps
    workflow ids to signals that are sent before the query, so that the response is from
    an entity that has read its signal. An entity that does not run when its signal is
    sent is missing. `argument` goes to the query, unless it is empty.
    """
    calls = _Round(client, query, size, before or {}, quiet_seconds, argument=argument)
    return await calls.run(workflow_ids)


@dataclass(frozen=True)
class VisibilityPage:
    """One page of visibility: running entities with their clusters, in order.

    `after` is the token of the next page. `ended` are the entities that no longer run,
    if they are requested too.
    """

    found: dict[str, str]
    after: str
    ended: Sequence[str] = ()


async def list_entities(client: Client, wanted: Survey) -> VisibilityPage:
    """List one page of the wanted entities."""
    listing = client.list_workflows(
        visibility_query(
            wanted.kinds,
            namespace=wanted.namespace,
            cluster=wanted.cluster,
            deployment=wanted.deployment,
            ended=wanted.ended,
        ),
        page_size=wanted.page_size,
        next_page_token=bytes.fromhex(wanted.after) or None,
    )
    await listing.fetch_next_page()
    rows = listing.current_page or ()
    ended = {
        row.id
        for row in rows
        if wanted.ended and row.status != WorkflowExecutionStatus.RUNNING
    }
    running = {
        row.id: row
        for row in rows
        if not wanted.ended or row.status == WorkflowExecutionStatus.RUNNING
    }
    found = {
        workflow_id: str(row.typed_search_attributes.get(CLUSTER) or "")
        for workflow_id, row in running.items()
    }
    return VisibilityPage(
        found, (listing.next_page_token or b"").hex(), sorted(ended - set(found))
    )


async def survey(client: Client, wanted: Survey) -> SurveyResult:
    """Query one page of the wanted running entities, or those that the last round left."""
    listing = (
        VisibilityPage(wanted.left, wanted.after)
        if wanted.left
        else await list_entities(client, wanted)
    )
    if not wanted.query:
        return SurveyResult(
            answers=dict.fromkeys(listing.found),
            ended=list(listing.ended),
            after=listing.after,
        )
    quiet_seconds = QUICK_SECONDS if wanted.quick else QUIET_SECONDS
    answers = await query_round(
        client,
        sorted(listing.found),
        wanted.query,
        quiet_seconds=quiet_seconds,
        argument=wanted.argument,
    )
    return SurveyResult(
        answers=answers.by_id,
        unresponsive={
            workflow_id: listing.found[workflow_id]
            for workflow_id in answers.unresponsive
        },
        left={workflow_id: listing.found[workflow_id] for workflow_id in answers.left},
        ended=list(listing.ended),
        after=listing.after,
    )


async def query_each(
    client: Client, workflow_ids: Sequence[str], query: str
) -> SurveyResult:
    """Query several entities.

    The result does not contain entities that no longer run.
    """
    answers = await query_round(client, workflow_ids, query)
    left = dict.fromkeys(answers.left, "")
    return SurveyResult(
        answers=answers.by_id,
        unresponsive=await still_running(client, answers.unresponsive),
        left=left,
    )


async def still_running(client: Client, workflow_ids: Sequence[str]) -> dict[str, str]:
    """Return the running workflows with their clusters.

    If the server does not respond about a workflow, it counts as running.
    """
    running: dict[str, str] = {}
    slots = asyncio.Semaphore(CALLS_AT_ONCE)

    async def look(workflow_id: str) -> None:
        async with slots:
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    handle = client.get_workflow_handle(workflow_id)
                    description = await handle.describe()
            except TimeoutError:
                running[workflow_id] = ""
                return
            except RPCError as error:
                if error.status != RPCStatusCode.NOT_FOUND:
                    running[workflow_id] = ""
                return
        if description.status == WorkflowExecutionStatus.RUNNING:
            running[workflow_id] = str(
                description.typed_search_attributes.get(CLUSTER) or ""
            )

    await asyncio.gather(*(look(workflow_id) for workflow_id in workflow_ids))
    return {workflow_id: running[workflow_id] for workflow_id in sorted(running)}


async def count_entities(client: Client, kind: str) -> EntityCount:
    """Count the running entities of a kind, and those whose `Ready` is Unknown."""
    running = await client.count_workflows(visibility_query([kind]))
    unknown = await client.count_workflows(unknown_query(kind))
    return EntityCount(running=running.count, unknown=unknown.count)


async def read_memo(client: Client, workflow_id: str, key: str) -> MemoValue:
    """Read the memo of an entity, also of a closed one.

    The value is None if it cannot be decoded. Raises `TimeoutError`.
    """
    async with asyncio.timeout(CALL_SECONDS):
        try:
            description = await client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return MemoValue(found=False)
            raise
        running = description.status == WorkflowExecutionStatus.RUNNING
        try:
            return MemoValue(
                found=running, value=await description.memo_value(key, None)
            )
        except DECODING_ERRORS as error:
            activity.logger.warning(
                "the memo of %s cannot be decoded: %s", workflow_id, error
            )
            return MemoValue(found=running)


async def first_run(client: Client, workflow_id: str) -> str:
    """Return the id of the first run of a running entity, or "" if it does not run.

    The id stays the same over continue-as-new.
    """
    async with asyncio.timeout(CALL_SECONDS):
        try:
            description = await client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return ""
            raise
    if description.status != WorkflowExecutionStatus.RUNNING:
        return ""
    return (
        description.raw_description.workflow_execution_info.first_run_id
        or description.run_id
    )


async def check_receivers(client: Client, wanted: CheckReceivers) -> ReceiverChanges:
    """Find the entities that do not run, and those with another first run than before.

    An entity is left out if the server does not respond about it. If the server
    responds about none, its error is raised.
    """
    slots = asyncio.Semaphore(CALLS_AT_ONCE)
    found: dict[str, str] = {}
    errors: list[Exception] = []

    async def find(workflow_id: str) -> None:
        async with slots:
            try:
                found[workflow_id] = await first_run(client, workflow_id)
            except (RPCError, TimeoutError) as error:
                errors.append(error)

    await asyncio.gather(*map(find, sorted({*wanted.known, *wanted.others})))
    if errors and not found:
        raise errors[0]
    running = {workflow_id: run for workflow_id, run in sorted(found.items()) if run}
    return ReceiverChanges(
        changed={
            workflow_id: run
            for workflow_id, run in running.items()
            if run != wanted.known.get(workflow_id, run)
        },
        missing=sorted(found.keys() - running.keys()),
    )
