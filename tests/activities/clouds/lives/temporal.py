"""A virtual-time stand-in for Temporal that runs one CloudCluster.

It runs the workflow, and its activities with heartbeats, timeouts and retries. The
workflow is the complete product code, and each attempt of an activity runs in
Temporal's test environment for activities. There is no server between them: histories,
determinism and the wire format are tested elsewhere.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from temporalio import exceptions, workflow
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.messaging.entity_client import EntityClient
from api_types.messages.clouds import CloudReport
from api_types.messages.delivery import SignalBatchResult
from tests.activities.clouds.lives.deaths import WorkerDied
from workflows.cloud_cluster.workflow import CloudClusterWorkflow

START = datetime(2026, 11, 1, tzinfo=UTC)
_CONDITION_SECONDS = 2.0
_NEW_WORKER_SECONDS = 30.0


class Defect(Exception):
    """An unexpected error reached Temporal, which would retry it for ever."""


class _NewRun(Exception):
    """The workflow continues as a new run."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state


class Temporal:
    """One CloudCluster.

    `activities` creates a worker's activities, and is called again after each death.
    """

    def __init__(
        self,
        workflow_id: str,
        activities: Callable[[], Any],
        draw: random.Random,
        *,
        new_runs: float = 0.0,
    ) -> None:
        self.id = workflow_id
        self._new_worker = activities
        self._worker = activities()
        self._draw = draw
        self._new_runs = new_runs
        self.instance: CloudClusterWorkflow
        self.reports: list[CloudReport] = []
        self.defects: list[str] = []
        self.attempts: list[str] = []
        """Every attempt of an activity, with its outcome."""
        self.runs = 0
        self._state: Any = None

    # The workflow

    def begin(self) -> "asyncio.Task[None]":
        """Run the workflow until it ends, over all its runs."""
        self._start_run()
        return asyncio.create_task(self._all_runs())

    def _start_run(self) -> None:
        self.runs += 1
        self._suggested = False
        arguments = () if self._state is None else (self._state,)
        self.instance = CloudClusterWorkflow(*arguments)

    async def _all_runs(self) -> None:
        while True:
            try:
                await self.instance.run()
            except _NewRun as error:
                self._state = error.state.model_dump(mode="json", by_alias=True)
                self._start_run()
            else:
                return

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        """Replace Temporal's API for the workflow."""
        replaced: dict[str, Any] = {
            "info": self._info,
            "now": self.now,
            "time": lambda: self.now().timestamp(),
            "random": lambda: self._draw,
            "sleep": _sleep,
            "wait_condition": _wait_condition,
            "execute_activity_method": self._execute,
            "upsert_search_attributes": lambda _: None,
            "set_current_details": lambda _: None,
            "all_handlers_finished": lambda: True,
            "continue_as_new": self._continue_as_new,
            "instance": lambda: self.instance,
            "memo": dict,
            # No earlier history is replayed.
            "patched": lambda _: True,
        }
        with contextlib.ExitStack() as stack:
            for name, value in replaced.items():
                stack.enter_context(patch.object(workflow, name, value))
            yield

    def now(self) -> datetime:
        """Return the virtual time."""
        return START + timedelta(seconds=asyncio.get_running_loop().time())

    def _info(self) -> Any:
        if self._new_runs and not self._suggested:
            self._suggested = self._draw.random() < self._new_runs
        return SimpleNamespace(
            workflow_id=self.id,
            continued_run_id="before" if self.runs > 1 else None,
            attempt=1,
            cron_schedule=None,
            is_continue_as_new_suggested=lambda: self._suggested,
        )

    def _continue_as_new(self, state: Any, **_: Any) -> None:
        raise _NewRun(state)

    # Activities

    async def _execute(self, method: Any, order: Any, **options: Any) -> Any:
        if method is EntityClient.signal_many:
            self.reports += [
                CloudReport.model_validate(each.payload) for each in order.signals
            ]
            return SignalBatchResult()
        return await _Execution(self, method.__name__, order, options).result()

    @property
    def worker(self) -> Any:
        """The activities of the current worker."""
        return self._worker

    def new_worker(self) -> None:
        """Start a worker without any memory."""
        self._worker = self._new_worker()

    def environment(
        self, attempt: int, details: list[Any], scheduled: datetime
    ) -> ActivityEnvironment:
        """Return the environment of one attempt."""
        made = ActivityEnvironment()
        made.info = replace(
            ActivityEnvironment.default_info(),
            workflow_id=self.id,
            attempt=attempt,
            heartbeat_details=details,
            scheduled_time=scheduled,
        )
        return made


class _Execution:
    """One activity with all its attempts."""

    def __init__(
        self, temporal: Temporal, name: str, order: Any, options: dict[str, Any]
    ) -> None:
        self._temporal = temporal
        self._name = name
        self._order = type(order).model_validate(
            order.model_dump(mode="json", by_alias=True)
        )
        self._options = options
        self._details: list[Any] = []
        self._scheduled = temporal.now()
        self._cancelled = False
        self._environment: ActivityEnvironment | None = None
        self._last: ApplicationError | None = None

    async def result(self) -> Any:
        """Return the result of the first successful attempt. Raises ActivityError."""
        task = asyncio.create_task(self._attempts())
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                if task.done():
                    break
                # The next heartbeat delivers the cancellation, and the end of the
                # activity is awaited.
                self._cancelled = True
            except Exception:  # noqa: BLE001 - is raised below
                break
        try:
            return task.result()
        except asyncio.CancelledError:
            raise self._failed() from exceptions.CancelledError("Cancelled")
        except (ApplicationError, exceptions.TimeoutError) as error:
            raise self._failed() from error

    async def _attempts(self) -> Any:
        policy = self._options["retry_policy"]
        delay = policy.initial_interval
        attempt = 0
        while True:
            attempt += 1
            try:
                result = await self._attempt(attempt)
            except WorkerDied as death:
                self._note(str(death))
                self._temporal.new_worker()
                await self._pause(_NEW_WORKER_SECONDS)
                continue
            except ApplicationError as error:
                self._note(f"{error.type}: {error.message}")
                if error.non_retryable:
                    raise ApplicationError(
                        error.message,
                        *error.details,
                        type=error.type,
                        non_retryable=True,
                    ) from None
                self._last = ApplicationError(
                    error.message, *error.details, type=error.type
                )
                await self._pause((error.next_retry_delay or delay).total_seconds())
                delay = min(delay * policy.backoff_coefficient, policy.maximum_interval)
            except TimeoutError:
                self._note("timeout")
                await self._pause(delay.total_seconds())
            else:
                self._note("done")
                return result

    async def _attempt(self, attempt: int) -> Any:
        environment = self._environment = self._temporal.environment(
            attempt, self._details, self._scheduled
        )

        def heartbeat(*details: Any) -> None:
            self._details = list(details)
            if self._cancelled:
                environment.cancel()

        environment.on_heartbeat = heartbeat
        seconds = self._options["start_to_close_timeout"].total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await environment.run(
                    getattr(self._temporal.worker, self._name), self._order
                )
        except (ApplicationError, WorkerDied, TimeoutError):
            raise
        except Exception as error:
            self._temporal.defects.append(
                f"{self._name}: {type(error).__name__}: {error}"
            )
            raise Defect(self._temporal.defects[-1]) from error

    async def _pause(self, seconds: float) -> None:
        """Wait for the next attempt.

        Raises Temporal's error if the wait is cancelled or exceeds a timeout.
        """
        limit = self._options.get("schedule_to_close_timeout")
        if (
            limit is not None
            and self._temporal.now() + timedelta(seconds=seconds)
            > self._scheduled + limit
        ):
            error = exceptions.TimeoutError(
                "activity ScheduleToClose timeout",
                type=exceptions.TimeoutType.SCHEDULE_TO_CLOSE,
                last_heartbeat_details=self._details,
            )
            error.__cause__ = self._last
            raise error
        clock = asyncio.get_running_loop().time
        ends = clock() + seconds
        while clock() < ends and not self._cancelled:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(min(5.0, seconds))
        if self._cancelled:
            raise asyncio.CancelledError

    def _note(self, how: str) -> None:
        key = getattr(getattr(self._order, "object", None), "key", "")
        self._temporal.attempts.append(
            f"{self._temporal.now():%H:%M:%S} {self._name} {key}: {how}"
        )

    def _failed(self) -> ActivityError:
        return ActivityError(
            "activity failed",
            scheduled_event_id=1,
            started_event_id=2,
            identity="",
            activity_type=self._name,
            activity_id=self._options.get("activity_id", ""),
            retry_state=None,
        )


async def _sleep(duration: Any, **_: Any) -> None:
    await asyncio.sleep(
        duration.total_seconds() if isinstance(duration, timedelta) else duration
    )


async def _wait_condition(holds: Callable[[], bool], **_: Any) -> None:
    while not holds():  # noqa: ASYNC110 - like Temporal, which checks after every event
        await asyncio.sleep(_CONDITION_SECONDS)
