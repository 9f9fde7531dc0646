"""Activities that run beside the reconcile loop, each under a key: what one gives or why it failed is recorded, then a pass follows."""

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
    """The calls that run now."""

    def __init__(self, context: EntityContext[Any]) -> None:
        self._context = context
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def running(self, key: str) -> bool:
        """Tell whether the call under this key runs."""
        return key in self._tasks

    @property
    def keys(self) -> list[str]:
        """The keys of all calls that run."""
        return list(self._tasks)

    def start(
        self, key: str, call: Callable[[], Awaitable[ResultT]], done: Callable[[ResultT], None], failed: Callable[[Failure], None]
    ) -> None:
        """Start a call, unless one runs under its key."""
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._run(key, call, done, failed))

    def stop(self, key: str) -> None:
        """Cancel a call, if it runs; its result is not recorded any more."""
        if task := self._tasks.pop(key, None):
            task.cancel()

    def stop_all(self) -> None:
        """Cancel all calls."""
        for key in self.keys:
            self.stop(key)

    async def until_ended(self, keys: list[str], limit: timedelta) -> None:
        """Wait until some calls have ended, for so long at most."""
        if not any(map(self.running, keys)):
            # Even a wait that is over would make a timer.
            return
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(lambda: not any(map(self.running, keys)), timeout=limit, timeout_summary="end of calls")

    async def _run(
        self, key: str, call: Callable[[], Awaitable[ResultT]], done: Callable[[ResultT], None], failed: Callable[[Failure], None]
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
