"""Queries that a worker refuses for the moment are sent again.

See `workflows/runner.py` for why it refuses. A caller cannot tell when that passes, and it passes with the next workflow task.
"""

import asyncio
import time
from typing import Any

from temporalio.client import Interceptor, OutboundInterceptor, QueryWorkflowInput, WorkflowQueryFailedError

from api_types.errors import QUERY_REFUSED

PAUSE_SECONDS = 0.2
# A worker that is this late with workflow tasks has more to report than one query.
LIMIT_SECONDS = 10.0


class RetriedQueries(Interceptor):
    """Sends a refused query again, for as long as the caller waits for an answer and for ten seconds at most."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 - the SDK calls it by this name
        """See the base class."""
        return _Retry(super().intercept_client(next))


class _Retry(OutboundInterceptor):
    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002 - the SDK calls it by this name
        wanted = input.rpc_timeout.total_seconds() if input.rpc_timeout else LIMIT_SECONDS
        deadline = time.monotonic() + min(wanted, LIMIT_SECONDS)
        while True:
            try:
                return await super().query_workflow(input)
            except WorkflowQueryFailedError as error:
                if QUERY_REFUSED not in str(error) or time.monotonic() + PAUSE_SECONDS > deadline:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)
