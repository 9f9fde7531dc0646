"""The only timer of a workflow for its next pass."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow

from workflows.entity.calls import activity_options
from workflows.entity.timers.steady_time import SteadyTime


class RequeueTimer:
    """Calls `requeue` at the wanted time.

    A running timer that fires earlier is kept, because each change costs two events.
    """

    def __init__(
        self, summary: str, requeue: Callable[[], None], time: SteadyTime
    ) -> None:
        self._summary = summary[: activity_options.SUMMARY_MAX]
        self._requeue = requeue
        self._time = time
        self._task: asyncio.Task[None] | None = None
        self._fires_at: datetime | None = None

    def update(self, wanted: datetime | None) -> None:
        """Set the time of the next pass; None for no pass."""
        running = self._task is not None and not self._task.done()
        if (
            running
            and wanted is not None
            and self._fires_at is not None
            and self._fires_at <= wanted
        ):
            return
        if self._task is not None and running:
            self._task.cancel()
        self._task, self._fires_at = None, wanted
        if wanted is not None:
            self._task = asyncio.create_task(self._fire(wanted))

    def cancel(self) -> None:
        if self._task:
            self._task.cancel()

    async def _fire(self, wanted: datetime) -> None:
        await workflow.sleep(
            max(wanted - self._time.now(), timedelta()), summary=self._summary
        )
        self._time.reached(wanted)
        self._requeue()
