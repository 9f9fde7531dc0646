"""Queries that a worker refuses or loses are sent again.

See `workflows/runner.py` for why it refuses one; with the run that leaves the cache, other queries that wait for it are lost. A caller
cannot tell when that passes, and it passes with the next workflow task.
"""

import asyncio
import dataclasses
import time
from datetime import timedelta
from typing import Any

from temporalio.client import Interceptor, OutboundInterceptor, QueryWorkflowInput, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from api_types.errors import QUERY_REFUSED

PAUSE_SECONDS = 0.2
# A query is answered within milliseconds, unless the worker has to replay the workflow first.
ATTEMPT_SECONDS = 5.0
# How long a caller waits that names no time of its own.
LIMIT_SECONDS = 30.0

_NO_ANSWER = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)


class RetriedQueries(Interceptor):
    """Sends a query again that was refused or lost, for as long as the caller waits for an answer."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 - the SDK calls it by this name
        """See the base class."""
        return _Retry(super().intercept_client(next))


class _Retry(OutboundInterceptor):
    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002 - the SDK calls it by this name
        deadline = time.monotonic() + (input.rpc_timeout.total_seconds() if input.rpc_timeout else LIMIT_SECONDS)
        while True:
            left = deadline - time.monotonic()
            attempt = dataclasses.replace(input, rpc_timeout=timedelta(seconds=min(left, ATTEMPT_SECONDS)))
            try:
                return await super().query_workflow(attempt)
            except WorkflowQueryFailedError as error:
                if QUERY_REFUSED not in str(error) or time.monotonic() + PAUSE_SECONDS >= deadline:
                    raise
            except RPCError as error:
                if error.status not in _NO_ANSWER or time.monotonic() + PAUSE_SECONDS >= deadline:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)
