"""Look up entities at the Temporal server, which answers without a worker.

A query needs a worker, and an entity that has none does not answer it. Visibility, the
memo and the runs of a workflow are known to the server.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
)
from temporalio.service import RPCError, RPCStatusCode

from activities.messaging.messages import (
    CheckReceivers,
    EntityCount,
    MemoValue,
    ReceiverChanges,
    Survey,
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
    # A row without `ended` matched the status in the filter, and may have ended since.
    found = {
        row.id: _cluster(row)
        for row in rows
        if not wanted.ended or row.status == WorkflowExecutionStatus.RUNNING
    }
    ended = {row.id for row in rows} - found.keys()
    return VisibilityPage(found, (listing.next_page_token or b"").hex(), sorted(ended))


async def count_entities(client: Client, kind: str) -> EntityCount:
    """Count the running entities of a kind, and those whose `Ready` is Unknown."""
    running = await client.count_workflows(visibility_query([kind]))
    unknown = await client.count_workflows(unknown_query(kind))
    return EntityCount(running=running.count, unknown=unknown.count)


async def still_running(client: Client, workflow_ids: Sequence[str]) -> dict[str, str]:
    """Return the running workflows with their clusters.

    If the server does not respond about a workflow, it counts as running.
    """
    running: dict[str, str] = {}
    slots = asyncio.Semaphore(CALLS_AT_ONCE)

    async def look(workflow_id: str) -> None:
        async with slots:
            try:
                found = await _last_run(client, workflow_id)
            except (RPCError, TimeoutError):
                running[workflow_id] = ""
                return
        if found is not None and found.status == WorkflowExecutionStatus.RUNNING:
            running[workflow_id] = _cluster(found)

    await asyncio.gather(*map(look, workflow_ids))
    return {workflow_id: running[workflow_id] for workflow_id in sorted(running)}


async def read_memo(client: Client, workflow_id: str, key: str) -> MemoValue:
    """Read the memo of an entity, also of a closed one.

    The value is None if it cannot be decoded. Raises `TimeoutError`.
    """
    last = await _last_run(client, workflow_id)
    if last is None:
        return MemoValue(found=False)
    is_running = last.status == WorkflowExecutionStatus.RUNNING
    try:
        return MemoValue(found=is_running, value=await last.memo_value(key, None))
    except DECODING_ERRORS as error:
        activity.logger.warning(
            "the memo of %s cannot be decoded: %s", workflow_id, error
        )
        return MemoValue(found=is_running)


async def first_run(client: Client, workflow_id: str) -> str:
    """Return the id of the first run of a running entity, or "" if it does not run.

    The id stays the same over continue-as-new. Raises `TimeoutError`.
    """
    last = await _last_run(client, workflow_id)
    if last is None or last.status != WorkflowExecutionStatus.RUNNING:
        return ""
    info = last.raw_description.workflow_execution_info
    return info.first_run_id or last.run_id


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


async def _last_run(
    client: Client, workflow_id: str
) -> WorkflowExecutionDescription | None:
    """Return the last run of a workflow, or None if there was none.

    Raises `TimeoutError`.
    """
    try:
        async with asyncio.timeout(CALL_SECONDS):
            return await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise


def _cluster(run: WorkflowExecution) -> str:
    return str(run.typed_search_attributes.get(CLUSTER) or "")
