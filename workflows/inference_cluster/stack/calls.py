"""Activities that run in the background of the reconcile loop, by key.

When an activity ends, its result or failure is recorded and another pass is queued.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from workflows.entity.context import EntityContext
from workflows.entity.failures import Failure, failure_of

ResultT = TypeVar("ResultT")


class BackgroundCalls:
    def __init__(self, context: EntityContext[Any]) -> None:
        self._context = context
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def running(self, key: str) -> bool:
        return key in self._tasks

    @property
    def keys(self) -> list[str]:
        return list(self._tasks)

    def start(
        self,
        key: str,
        call: Callable[[], Awaitable[ResultT]],
        done: Callable[[ResultT], None],
        failed: Callable[[Failure], None],
    ) -> None:
        """Start a call unless one is running under the same key."""
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._run(key, call, done, failed))

    def stop(self, key: str) -> None:
        """Cancel a running call. Its result is not recorded."""
        if task := self._tasks.pop(key, None):
            task.cancel()

    def stop_all(self) -> None:
        for key in self.keys:
            self.stop(key)

    async def until_ended(self, keys: list[str], limit: timedelta) -> None:
        """Wait until the given calls have ended, up to a limit."""
        if not any(map(self.running, keys)):
            # Even a wait that is over would create a timer.
            return
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: not any(map(self.running, keys)),
                timeout=limit,
                timeout_summary="end of calls",
            )

    async def _run(
        self,
        key: str,
        call: Callable[[], Awaitable[ResultT]],
        done: Callable[[ResultT], None],
        failed: Callable[[Failure], None],
    ) -> None:
        task = asyncio.current_task()
        try:
            result = await call()
        except ActivityError as error:
            if self._tasks.get(key) is task and not is_cancelled_exception(error):
                del self._tasks[key]
                failed(failure_of(error))
        else:
            if self._tasks.get(key) is task:
                del self._tasks[key]
                done(result)
        self._context.requeue()
