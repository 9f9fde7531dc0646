"""Run the activities of a CloudCluster in the background of its main loop.

The activity ID and summary contain the key of the object, so that the Temporal UI shows
the progress along the graph.
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
"""The keys of activities that concern all objects. No object has such a key."""

# Activities send a heartbeat every ten seconds, so a lost worker is noticed soon for
# every class of work. A worker learns of a cancellation from its heartbeat, so a
# cancelled creation ends as soon.
_HEARTBEAT = timedelta(seconds=30)
# A Helm release owns nothing outside the cluster. It is deleted before the cluster only
# if its deletion succeeds within this time.
_RELEASE_REMOVAL = timedelta(minutes=5)


def _options(
    to_close: timedelta,
    all_attempts: timedelta,
    first: float,
    longest: float,
    factor: float = 2.0,
) -> ActivityConfig:
    return ActivityConfig(
        task_queue=queues.CLOUD,
        start_to_close_timeout=to_close,
        schedule_to_close_timeout=all_attempts,
        heartbeat_timeout=_HEARTBEAT,
        retry_policy=RetryPolicy(
            initial_interval=timedelta(seconds=first),
            maximum_interval=timedelta(seconds=longest),
            backoff_coefficient=factor,
        ),
        # A cancelled activity may still create something until it has ended.
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


# When all attempts have failed, the cluster shows the last error and starts new
# attempts later. Every activity has a timeout. Without one, an activity that keeps
# failing inside Temporal would never be reported.
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
"""Options for making a plan and for observing all objects."""
SWEEP = _options(timedelta(minutes=30), timedelta(hours=1), 30, 300, 1.5)
LAST_LOOK = _options(timedelta(minutes=2), timedelta(minutes=5), 2, 30)
"""Options for the last audit of an abandoned cluster. The user waits for its result."""


def options_of(
    each: CloudObject, verb: str, epoch: int, *, whole: bool = False
) -> ActivityConfig:
    """Return the options of an activity that works on one object.

    Set `whole` when the whole cluster is being deleted.
    """
    table = DELETE if verb == "delete" else ENSURE
    options = remote(table[each.work], f"{verb} {each.key}: {each.kind} {each.name}")
    options["activity_id"] = f"{verb} {each.key} {epoch}"
    if whole and each.kind == HELM_RELEASE:
        options["schedule_to_close_timeout"] = _RELEASE_REMOVAL
    return options


def executing(
    activity: Callable[[Any, OrderT], Awaitable[ResultT]],
    order: OrderT,
    options: ActivityConfig,
) -> Callable[[], Awaitable[ResultT]]:
    """Return a function that executes an activity."""
    return lambda: workflow.execute_activity_method(activity, order, **options)


class Calls:
    """The running activities, by key.

    When an activity ends, its result or failure is recorded and another pass is queued.
    """

    def __init__(self, requeue: Callable[[], None]) -> None:
        self._requeue = requeue
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    @property
    def keys(self) -> list[str]:
        """The keys of all running activities."""
        return list(self._tasks)

    def running(self, key: str) -> bool:
        return key in self._tasks

    def start(
        self,
        key: str,
        call: Callable[[], Awaitable[ResultT]],
        done: Callable[[ResultT], None],
        failed: Callable[[Failure], None],
    ) -> None:
        """Start an activity unless one is running under the same key.

        While `stop_all` waits, nothing is started, so results that arrive then start no
        more work.
        """
        if key not in self._tasks and not self._stopping:
            self._tasks[key] = asyncio.create_task(self._run(key, call, done, failed))

    def stop(self, key: str) -> None:
        """Cancel an activity.

        It counts as running until it has ended. Only a result is recorded, not the
        cancellation.
        """
        task = self._tasks.get(key)
        if task is not None and not task.cancelling():
            task.cancel()

    async def stop_all(self) -> None:
        """Cancel all activities and wait until each has ended. Record no results."""
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
        self,
        key: str,
        call: Callable[[], Awaitable[ResultT]],
        done: Callable[[ResultT], None],
        failed: Callable[[Failure], None],
    ) -> None:
        try:
            result = await call()
        except asyncio.CancelledError:
            # The activity was cancelled before it started.
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
