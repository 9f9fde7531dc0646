"""Retries queries that were rejected or lost.

A worker rejects a query that could change the order of a workflow's commands;
`workflows/runner.py` explains this. It then evicts the run from its cache, and other
queries of that run are lost. The next workflow task ends this state, but a caller
cannot see when. The server rejects queries of a workflow with too many pending queries.
A run that was terminated with an unread signal has no next task, so its queries are
rejected for ever.
"""

import asyncio
import dataclasses
from datetime import timedelta
from typing import Any

from temporalio.client import (
    DescribeWorkflowInput,
    Interceptor,
    OutboundInterceptor,
    QueryWorkflowInput,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
)
from temporalio.service import RPCError, RPCStatusCode

from api_types.errors import QUERY_REFUSED

PAUSE_SECONDS = 0.2
# A query is answered within milliseconds, unless the worker has to replay the workflow
# first. The first attempt ends after this time. The timeout doubles after each lost
# attempt, because a worker that is behind also answers abandoned queries. No attempt
# takes more than a third of the caller's time, so that another attempt is possible.
ATTEMPT_SECONDS = 5.0
ATTEMPT_SHARE = 1 / 3
# The limit for a caller that sets no timeout.
LIMIT_SECONDS = 30.0
_SECONDS_MIN = 0.001

_LOST = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)


class RetriedQueries(Interceptor):
    """Retries a rejected or lost query until the caller's timeout."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        return _Retry(super().intercept_client(next))


class _Retry(OutboundInterceptor):
    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002
        limit = (
            input.rpc_timeout.total_seconds() if input.rpc_timeout else LIMIT_SECONDS
        )
        now = asyncio.get_running_loop().time
        deadline = now() + limit
        lost = refused = 0
        while True:
            seconds = _attempt_seconds(lost, limit, deadline - now())
            try:
                return await super().query_workflow(
                    dataclasses.replace(input, rpc_timeout=timedelta(seconds=seconds))
                )
            except (WorkflowQueryFailedError, RPCError) as error:
                if not _may_pass(error) or now() + PAUSE_SECONDS >= deadline:
                    raise
                lost += isinstance(error, RPCError) and error.status in _LOST
                refused += isinstance(error, WorkflowQueryFailedError)
                # The first rejection evicts the run, and the next query replays it.
                if refused > 1 and await self._is_closed(input, deadline - now()):
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    async def _is_closed(
        self,
        input: QueryWorkflowInput,  # noqa: A002
        left: float,
    ) -> bool:
        """Return whether the run is closed; False if the server does not respond."""
        seconds = max(min(ATTEMPT_SECONDS, left), _SECONDS_MIN)
        run = DescribeWorkflowInput(
            id=input.id,
            run_id=input.run_id,
            rpc_metadata=input.rpc_metadata,
            rpc_timeout=timedelta(seconds=seconds),
        )
        try:
            found = await super().describe_workflow(run)
        except RPCError:
            return False
        return found.status != WorkflowExecutionStatus.RUNNING


def _attempt_seconds(lost: int, limit: float, left: float) -> float:
    """Return the timeout of the next attempt after `lost` lost attempts.

    The last attempt uses all remaining time, for a slow replay.
    """
    share = min(limit * ATTEMPT_SHARE, ATTEMPT_SECONDS * 2**lost)
    # The previous pause may have ended late, and the SDK does not accept a negative
    # timeout.
    return share if left >= 2 * share else max(left, _SECONDS_MIN)


def _may_pass(error: WorkflowQueryFailedError | RPCError) -> bool:
    """Return whether the query was rejected or lost, so that a retry can help."""
    if isinstance(error, RPCError):
        return error.status in _LOST or error.status == RPCStatusCode.RESOURCE_EXHAUSTED
    return QUERY_REFUSED in str(error)
