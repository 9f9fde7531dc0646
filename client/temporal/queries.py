"""Queries that a worker or the server refuses, or that are lost, are sent again.

See `workflows/runner.py` for why a worker refuses one; with the run that leaves the cache, other queries that wait for it are lost. A
caller cannot tell when that passes, and it passes with the next workflow task. The server refuses queries of a workflow for which enough
others wait already.
"""

import asyncio
import dataclasses
from datetime import timedelta
from typing import Any

from temporalio.client import Interceptor, OutboundInterceptor, QueryWorkflowInput, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from api_types.errors import QUERY_REFUSED

PAUSE_SECONDS = 0.2
# A query is answered within milliseconds, unless the worker has to replay the workflow first. The first attempt ends after this time, and
# each after a lost one takes twice as long: a worker that is behind answers also what no client waits for any more. None takes more than a
# third of the caller's time, for that would leave none for another.
ATTEMPT_SECONDS = 5.0
ATTEMPT_SHARE = 1 / 3
# How long a caller waits that names no time of its own.
LIMIT_SECONDS = 30.0
_SECONDS_MIN = 0.001

_LOST = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)


class RetriedQueries(Interceptor):
    """Sends a query again that was refused or lost, for as long as the caller waits for an answer."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 - the SDK calls it by this name
        """See the base class."""
        return _Retry(super().intercept_client(next))


class _Retry(OutboundInterceptor):
    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002 - the SDK calls it by this name
        limit = input.rpc_timeout.total_seconds() if input.rpc_timeout else LIMIT_SECONDS
        now = asyncio.get_running_loop().time
        deadline = now() + limit
        lost = 0
        while True:
            seconds = _attempt_seconds(lost, limit, deadline - now())
            try:
                return await super().query_workflow(dataclasses.replace(input, rpc_timeout=timedelta(seconds=seconds)))
            except (WorkflowQueryFailedError, RPCError) as error:
                if not _may_pass(error) or now() + PAUSE_SECONDS >= deadline:
                    raise
                lost += isinstance(error, RPCError) and error.status in _LOST
            await asyncio.sleep(PAUSE_SECONDS)


def _attempt_seconds(lost: int, limit: float, left: float) -> float:
    """Give the time of the attempt after so many lost ones. The last one takes all that is left, for a slow replay."""
    share = min(limit * ATTEMPT_SHARE, ATTEMPT_SECONDS * 2**lost)
    # The pause before may have ended late, and the SDK takes no negative time.
    return share if left >= 2 * share else max(left, _SECONDS_MIN)


def _may_pass(error: WorkflowQueryFailedError | RPCError) -> bool:
    """Tell whether the query was refused or lost, and not answered with an error."""
    if isinstance(error, RPCError):
        return error.status in _LOST or error.status == RPCStatusCode.RESOURCE_EXHAUSTED
    return QUERY_REFUSED in str(error)
