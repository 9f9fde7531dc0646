"""Connections that deliver every signal three times.

Twice at once, and again late, like a retry after a lost confirmation.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from temporalio.client import (
    Interceptor,
    OutboundInterceptor,
    SignalWorkflowInput,
    StartWorkflowInput,
    WorkflowHandle,
)
from temporalio.service import RPCError

from fleet_client.temporal.queries import RetriedQueries

LATE_SECONDS = 1.5


class DoubledSignals(RetriedQueries):
    """Count the signals by name."""

    def __init__(self, sent: Counter[str]) -> None:
        super().__init__()
        self._sent = sent

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        return _Doubling(super().intercept_client(next), self._sent)


class _Doubling(OutboundInterceptor):
    def __init__(self, inner: OutboundInterceptor, sent: Counter[str]) -> None:
        super().__init__(inner)
        self._sent = sent
        # References keep the tasks from being garbage collected before they run.
        self._late: set[asyncio.Task[None]] = set()

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002
        await super().signal_workflow(input)
        self._sent[input.signal] += 1
        await self._repeat(input)
        task = asyncio.create_task(self._repeat_late(input))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def start_workflow(
        self,
        input: StartWorkflowInput,  # noqa: A002
    ) -> WorkflowHandle[Any, Any]:
        handle = await super().start_workflow(input)
        if input.start_signal:
            self._sent[input.start_signal] += 1
            await super().start_workflow(input)
        return handle

    async def _repeat(self, sent: SignalWorkflowInput) -> None:
        # Its receiver may have ended after the first delivery.
        with suppress(RPCError):
            await super().signal_workflow(sent)

    async def _repeat_late(self, sent: SignalWorkflowInput) -> None:
        await asyncio.sleep(LATE_SECONDS)
        await self._repeat(sent)


def doubling(sent: Counter[str]) -> Callable[[], Interceptor]:
    """Return a factory of such interceptors."""
    return lambda: DoubledSignals(sent)
