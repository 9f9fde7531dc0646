"""Querying many entities. One that does not answer in time may have no worker at the moment: it is named, never left out."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.messaging.messages import MemoValue, Survey, SurveyResult
from activities.messaging.search_attributes import CLUSTER, visibility_query
from activities.messaging.sending import CALL_SECONDS, CALLS_AT_ONCE

_QUERY_TIMEOUT = timedelta(seconds=5)


async def survey(client: Client, wanted: Survey) -> SurveyResult:
    """Query one page of the running entities that are wanted."""
    listing = client.list_workflows(
        visibility_query(wanted.kinds, namespace=wanted.namespace, cluster=wanted.cluster, deployment=wanted.deployment),
        page_size=wanted.page_size,
        next_page_token=bytes.fromhex(wanted.after) or None,
    )
    await listing.fetch_next_page()
    found = {row.id: str(row.typed_search_attributes.get(CLUSTER) or "") for row in listing.current_page or ()}
    after = (listing.next_page_token or b"").hex()
    if not wanted.query:
        return SurveyResult(answers=dict.fromkeys(found), after=after)
    answers, unresponsive = await _query_each(client, list(found), wanted.query)
    return SurveyResult(answers=answers, unresponsive={workflow_id: found[workflow_id] for workflow_id in unresponsive}, after=after)


async def query_each(client: Client, workflow_ids: Sequence[str], query: str) -> SurveyResult:
    """Query several entities; those that do not run any more are in neither list."""
    answers, unresponsive = await _query_each(client, workflow_ids, query)
    running: dict[str, str] = {}
    for workflow_id in unresponsive:
        try:
            description = await client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            continue
        if description.status == WorkflowExecutionStatus.RUNNING:
            running[workflow_id] = str(description.typed_search_attributes.get(CLUSTER) or "")
    return SurveyResult(answers=answers, unresponsive=running)


async def _query_each(client: Client, workflow_ids: Sequence[str], query: str) -> tuple[dict[str, Any], list[str]]:
    """Give the answers by id, in order, and the ids that gave none in time."""
    answers: dict[str, Any] = {}
    unresponsive: list[str] = []
    slots = asyncio.Semaphore(CALLS_AT_ONCE)

    async def send(workflow_id: str) -> None:
        async with slots:
            try:
                answers[workflow_id] = await client.get_workflow_handle(workflow_id).query(query, rpc_timeout=_QUERY_TIMEOUT)
            except (RPCError, WorkflowQueryFailedError):
                unresponsive.append(workflow_id)

    await asyncio.gather(*(send(workflow_id) for workflow_id in workflow_ids))
    return {workflow_id: answers[workflow_id] for workflow_id in sorted(answers)}, sorted(unresponsive)


async def read_memo(client: Client, workflow_id: str, key: str) -> MemoValue:
    """Read the memo of a running entity. Raises `TimeoutError`."""
    async with asyncio.timeout(CALL_SECONDS):
        try:
            description = await client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return MemoValue(found=False)
            raise
        if description.status != WorkflowExecutionStatus.RUNNING:
            return MemoValue(found=False)
        return MemoValue(found=True, value=await description.memo_value(key, None))
