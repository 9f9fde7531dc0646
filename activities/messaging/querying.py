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
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.messaging.lookups import (
    VisibilityPage,
    list_entities,
    still_running,
)
from activities.messaging.messages import Survey, SurveyResult
from activities.messaging.sending import (
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
        self._queried: set[str] = set()
        self._last = time.monotonic()
        self._answers: dict[str, Any] = {}
        self._missing: list[str] = []

    async def run(self, workflow_ids: Sequence[str]) -> QueryResults:
        tasks = {
            asyncio.create_task(self._query_when_free(workflow_id)): workflow_id
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
        fitting = self._fitting(
            [each for each in workflow_ids if each in self._answers]
        )
        silent = self._queried - self._answers.keys() - set(self._missing)
        reached = fitting.keys() | silent | set(self._missing)
        return QueryResults(
            by_id=fitting,
            unresponsive=[each for each in workflow_ids if each in silent],
            missing=self._missing,
            left=[each for each in workflow_ids if each not in reached],
        )

    def _fitting(self, answered: Sequence[str]) -> dict[str, Any]:
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
        all_queried = len(self._queried) == wanted or self._starts_no_more()
        quiet = now - self._last > self._quiet_seconds
        return (all_queried and quiet) or now > self._ends + ROUND_SECONDS

    def _starts_no_more(self) -> bool:
        """Return whether the payload is nearly full or the time is up."""
        return self._bytes > LIST_BYTES_MAX // 2 or time.monotonic() > self._ends

    async def _query_when_free(self, workflow_id: str) -> None:
        async with self._slots:
            if self._starts_no_more():
                return
            self._queried.add(workflow_id)
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
