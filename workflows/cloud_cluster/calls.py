"""The activities of a CloudCluster, beside its loop: their options, by how long the work may take, and their results.

An activity has the key of its object as its id and in its summary, so the Temporal UI shows the graph as it moves.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception
from temporalio.workflow import ActivityCancellationType, ActivityConfig

from api_types import queues
from api_types.messages.clouds import HELM_RELEASE, CloudObject, WorkClass
from workflows.cloud_cluster.failures import failure_of
from workflows.entity.calls.activity_options import remote
from workflows.entity.failures import Failure

OrderT = TypeVar("OrderT")
ResultT = TypeVar("ResultT")

PLAN, OBSERVE, AUDIT = "/plan", "/observe", "/audit"
"""The keys of what is done for all objects; no object has such a key."""

# Heartbeats are sent every ten seconds, whatever is waited for, so a worker that is lost is noticed with any class of work. A cancellation
# reaches a worker with a heartbeat: the creation of a cluster that is to be deleted ends as soon.
_HEARTBEAT = timedelta(seconds=30)
# A release is removed before its cluster is, if it can be: it owns nothing outside.
_RELEASE_REMOVAL = timedelta(minutes=5)


def _options(to_close: timedelta, all_attempts: timedelta, first: float, longest: float, factor: float = 2.0) -> ActivityConfig:
    return ActivityConfig(
        task_queue=queues.CLOUD,
        start_to_close_timeout=to_close,
        schedule_to_close_timeout=all_attempts,
        heartbeat_timeout=_HEARTBEAT,
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=first), maximum_interval=timedelta(seconds=longest), backoff_coefficient=factor
        ),
        # What is cancelled may still create something until its end is known.
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


# spec/provisioning.md 3.2. The end of all attempts is no failure of the cluster: what the last one said is shown, and others follow. All
# have an end: what fails inside Temporal for ever would else never be shown.
ENSURE: dict[WorkClass, ActivityConfig] = {
    "Quick": _options(timedelta(minutes=3), timedelta(minutes=30), 2, 60),
    "Medium": _options(timedelta(minutes=20), timedelta(hours=1), 5, 120),
    "ControlPlane": _options(timedelta(minutes=50), timedelta(hours=3), 10, 300),
    "NodePool": _options(timedelta(minutes=70), timedelta(hours=3), 10, 300),
}
DELETE: dict[WorkClass, ActivityConfig] = {
    "Quick": _options(timedelta(minutes=3), timedelta(minutes=30), 2, 60),
    "Medium": _options(timedelta(minutes=20), timedelta(hours=1), 5, 120),
    "ControlPlane": _options(timedelta(minutes=60), timedelta(minutes=60), 10, 300),
    "NodePool": _options(timedelta(minutes=60), timedelta(minutes=60), 10, 300),
}
WHOLE = _options(timedelta(minutes=20), timedelta(hours=1), 5, 120)
"""Plans, and looks at all objects."""
SWEEP = _options(timedelta(minutes=30), timedelta(hours=1), 30, 300, 1.5)
LAST_LOOK = _options(timedelta(minutes=2), timedelta(minutes=5), 2, 30)
"""A look at what is left of a cluster that is given up: whoever gives it up waits for the end."""


def options_of(each: CloudObject, verb: str, epoch: int, *, whole: bool = False) -> ActivityConfig:
    """Give the options of the work on one object; `whole`: the cluster goes with it."""
    table = DELETE if verb == "delete" else ENSURE
    options = remote(table[each.work], f"{verb} {each.key}: {each.kind} {each.name}")
    options["activity_id"] = f"{verb} {each.key} {epoch}"
    if whole and each.kind == HELM_RELEASE:
        options["schedule_to_close_timeout"] = _RELEASE_REMOVAL
    return options


def executing(
    activity: Callable[[Any, OrderT], Awaitable[ResultT]], order: OrderT, options: ActivityConfig
) -> Callable[[], Awaitable[ResultT]]:
    """Give the call of an activity."""
    return lambda: workflow.execute_activity_method(activity, order, **options)


class Calls:
    """The activities that run now, each under a key. What one gives or why it failed is recorded, then a pass follows."""

    def __init__(self, requeue: Callable[[], None]) -> None:
        self._requeue = requeue
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    @property
    def keys(self) -> list[str]:
        """The keys of all that run."""
        return list(self._tasks)

    def running(self, key: str) -> bool:
        """Tell whether the one under this key runs."""
        return key in self._tasks

    def start(
        self, key: str, call: Callable[[], Awaitable[ResultT]], done: Callable[[ResultT], None], failed: Callable[[Failure], None]
    ) -> None:
        """Execute an activity, unless one runs under its key, or all are being stopped: what one gives last begins no other."""
        if key not in self._tasks and not self._stopping:
            self._tasks[key] = asyncio.create_task(self._run(key, call, done, failed))

    def stop(self, key: str) -> None:
        """Cancel one; it runs until its activity has ended, and nothing is recorded of it unless that had a result."""
        task = self._tasks.get(key)
        if task is not None and not task.cancelling():
            task.cancel()

    async def stop_all(self) -> None:
        """Cancel all and wait until each has ended: none of them does anything after this. Nothing of them is recorded."""
        tasks = [self._tasks[key] for key in self.keys]
        self._stopping = True
        try:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        finally:
            self._stopping = False
        self._tasks.clear()

    async def _run(
        self, key: str, call: Callable[[], Awaitable[ResultT]], done: Callable[[ResultT], None], failed: Callable[[Failure], None]
    ) -> None:
        try:
            result = await call()
        except asyncio.CancelledError:
            # Before it was begun.
            self._tasks.pop(key, None)
            self._requeue()
            raise
        except ActivityError as error:
            self._tasks.pop(key, None)
            if not is_cancelled_exception(error):
                failed(failure_of(error))
        else:
            self._tasks.pop(key, None)
            done(result)
        self._requeue()
