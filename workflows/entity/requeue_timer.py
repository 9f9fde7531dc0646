"""The timer behind `requeue_at`: one for the next pass, and only if there is one."""

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow

from workflows.entity import activity_options
from workflows.entity.context import EntityContext
from workflows.entity.state import EntityState


class RequeueTimer:
    """Requeues the object at its requeue time. A timer that fires no later than wanted is kept: each change costs two events."""

    def __init__(self, context: EntityContext[EntityState]) -> None:
        self._context = context
        self._task: asyncio.Task[None] | None = None
        self._fires_at: datetime | None = None

    def update(self) -> None:
        """Follow the requeue time of the context."""
        wanted = self._context.requeue_time
        running = self._task is not None and not self._task.done()
        if running and wanted is not None and self._fires_at is not None and self._fires_at <= wanted:
            return
        if self._task is not None and running:
            self._task.cancel()
        self._task, self._fires_at = None, wanted
        if wanted is not None:
            self._task = asyncio.create_task(self._fire(max(wanted - workflow.now(), timedelta())))

    def cancel(self) -> None:
        """Stop the timer."""
        if self._task:
            self._task.cancel()

    async def _fire(self, after: timedelta) -> None:
        await workflow.sleep(after, summary=f"{self._context.title}: requeue"[: activity_options.SUMMARY_MAX])
        self._context.requeue()
