"""The interface between an entity workflow and its parts.

A workflow class has signals, queries and one loop, and delegates the work to parts.
Each part receives this context: the carried state, conditions and events, the time of
the next pass, signals to other entities, and `publish`, which shows the current state
before a long step. `publish` is the only callback into the workflow. A part may receive
other parts, but never the workflow itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from temporalio import workflow

from activities.messaging.entity_client import EntityClient
from api_types import clock
from api_types.messages.delivery import (
    EntityRef,
    MessageT,
    ReceiverT,
    Signal,
    SignalRequest,
)
from workflows.entity.calls import activity_options
from workflows.entity.calls.sending import send_all
from workflows.entity.conditions import REFUSALS_KEPT, with_condition, with_event
from workflows.entity.state import EntityState

StateT_co = TypeVar("StateT_co", bound=EntityState, covariant=True)
ResultT = TypeVar("ResultT")

# How long a forced teardown waits for the end of an activity that it cancelled. The
# worker of the activity learns about the cancellation with its next heartbeat.
FORCED_CANCELLATION = timedelta(seconds=2)

# The attempts that a watch can make while the clock is behind its number.
WATCH_ATTEMPTS_MAX = 1_000


class EntityContext(Generic[StateT_co]):
    """The object of an entity workflow, and its place in the reconcile loop.

    `moment` returns the current time. Outside a workflow, the context needs an id and a
    clock. `run_until` and the methods that send signals do not work there.
    """

    def __init__(
        self,
        kind: str,
        state: StateT_co,
        publish: Callable[[], None],
        workflow_id: str = "",
        moment: Callable[[], datetime] | None = None,
        *,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        """Create the context.

        `moment` is the time for waits and conditions, and `clock` the time of the
        server.
        """
        self.kind = kind
        self.state = state
        self._written = state.written
        self.publish = publish
        self.moment = moment or workflow_time
        # Message numbers follow the server's clock. The time for waits is ahead of it
        # after the clock was set back.
        self._clock = clock or self.moment
        _, *scope, self.name = (workflow_id or workflow.info().workflow_id).split("/")
        self.namespace = scope[0] if scope else ""
        self.queued = True
        self.requeue_time: datetime | None = None
        # Callbacks that run before this run ends, to stop tasks outside the reconcile
        # loop.
        self.on_end: list[Callable[[], None]] = []

    @property
    def title(self) -> str:
        """The object's name in messages: kind, namespace and name."""
        return (
            f"{self.kind} {self.namespace}/{self.name}"
            if self.namespace
            else f"{self.kind} {self.name}"
        )

    def now(self) -> str:
        """Return the workflow's time in Kubernetes' format."""
        return clock.timestamp(self.moment())

    def next_number(self, last: int) -> int:
        """Return a message number above the numbers of all earlier messages.

        Temporal may repeat a workflow task, because its worker is lost or a new signal
        invalidates it. The first attempt leaves no trace in the state but may have sent
        messages. The repeated task may decide differently, and its messages must not
        reuse a number. The time makes the numbers unique, because the lost messages
        were sent earlier.
        """
        return max(last + 1, int(self._clock().timestamp() * 1000))

    def next_registration(self) -> int:
        """Return a number above all numbers that this object has sent.

        Messages that replace earlier ones carry it.
        """
        self.state.registration = self.next_number(self.state.registration)
        return self.state.registration

    def next_watch(self, observed_run: int) -> int:
        """Return a number for a watch, above the attempts of all earlier watches.

        An attempt adds at most its own number to the number of its watch. After the
        clock was set back, the clock alone does not separate the attempts of one watch
        from the next watch. `observed_run` is the run of the last accepted observation.
        """
        last = max(self.state.registration + WATCH_ATTEMPTS_MAX, observed_run)
        self.state.registration = self.next_number(last)
        return self.state.registration

    # Status of the object

    def set_condition(
        self, kind: str, status: str, reason: str, message: str = ""
    ) -> None:
        changed = with_condition(
            self.state.conditions,
            kind,
            status,
            reason,
            message,
            now=self.now(),
            generation=self.state.generation,
        )
        if changed is not self.state.conditions:
            self.state.conditions = changed
            self.mark_changed()

    def remove_condition(self, kind: str) -> None:
        others = [
            condition for condition in self.state.conditions if condition.type != kind
        ]
        if len(others) != len(self.state.conditions):
            self.state.conditions = others
            self.mark_changed()

    def record_event(self, kind: str, reason: str, message: str) -> None:
        """Record an event. Callers do so on transitions only."""
        self.state.events = with_event(
            self.state.events, kind, reason, message, now=self.now()
        )
        self.mark_changed()

    def record_report(self, kind: str, reason: str, message: str) -> bool:
        """Record another system's report; return False if it is a repetition.

        The caller marks the change. Few events per reason are kept, so that no system
        displaces the events of the object itself.
        """
        self.state.events = with_event(
            self.state.events,
            kind,
            reason,
            message,
            now=self.now(),
            of_reason_max=REFUSALS_KEPT,
        )
        return self.state.events[-1].count == 1

    def record_refusal(self, reason: str, message: str) -> None:
        """Record a refused request.

        The object does not change. So no pass follows, and changes of users do not
        conflict with the event.
        """
        self.state.events = with_event(
            self.state.events,
            "Warning",
            reason,
            message,
            now=self.now(),
            of_reason_max=REFUSALS_KEPT,
        )

    def mark_changed(self) -> None:
        """Raise the resource version and requeue.

        A resource version is the time in microseconds, so that versions of different
        objects can be compared.
        """
        self.state.resource_version = max(
            self.state.resource_version + 1, microseconds(self._clock())
        )
        if self.state.written != self._written:
            self._written, self.state.manifest_version = (
                self.state.written,
                self.state.resource_version,
            )
        self.requeue()

    def is_manifest_of(self, version: str) -> bool:
        """Return whether labels, annotations and spec are unchanged since a version.

        `version` is a resource version.
        """
        if version == str(self.state.resource_version):
            return True
        known = version.isdecimal() and self.state.manifest_version > 0
        return (
            known
            and self.state.manifest_version
            <= int(version)
            <= self.state.resource_version
        )

    # The next pass

    def requeue(self) -> None:
        """Reconcile again right after the present pass."""
        self.queued = True

    def requeue_after(self, delay: timedelta) -> None:
        """Reconcile again after a delay. The shortest of several delays counts."""
        self.requeue_at(self.moment() + delay)

    def requeue_at(self, time: datetime) -> None:
        """Reconcile again at a time. The earliest of several times counts."""
        self.requeue_time = (
            time if self.requeue_time is None else min(time, self.requeue_time)
        )

    def is_future(self, moment: str) -> bool:
        """Return whether a moment in ISO 8601 is in the future; False if it is empty."""
        return bool(moment) and datetime.fromisoformat(moment) > self.moment()

    def waits_until(self, moment: str) -> bool:
        """Return whether a moment is in the future, and requeue for it if so."""
        is_future = self.is_future(moment)
        if is_future:
            self.requeue_at(datetime.fromisoformat(moment))
        return is_future

    # Signals and cancellable work

    async def signal(
        self,
        to: EntityRef[ReceiverT],
        signal: Signal[ReceiverT, MessageT],
        message: MessageT,
    ) -> bool:
        """Signal another entity; return False if it does not run."""
        return await self.send(signal.request(to, message))

    async def send(self, request: SignalRequest, *, recorded: bool = False) -> bool:
        """Send a prepared signal; return False if its receiver does not run.

        With `recorded`, the history records the decision before the signal is sent, as
        in `signal_recorded`.
        """
        if recorded:
            return not await send_all(
                [request], f"signal {request.workflow_id}: {request.signal}"
            )
        return await workflow.execute_local_activity_method(
            EntityClient.signal,
            request,
            **activity_options.local(
                activity_options.ENTITY_CALL,
                f"signal {request.workflow_id}: {request.signal}",
            ),
        )

    async def signal_recorded(
        self,
        to: EntityRef[ReceiverT],
        signal: Signal[ReceiverT, MessageT],
        message: MessageT,
    ) -> bool:
        """Signal another entity after the history has recorded the decision.

        Return False if the entity does not run. Messages that are never repeated need
        this: a repeated workflow task may decide to send nothing, without knowing that
        its first attempt sent a message.
        """
        return await self.send(signal.request(to, message), recorded=True)

    async def run_until(
        self, stop: Callable[[], bool], work: Awaitable[ResultT]
    ) -> ResultT | None:
        """Await some work, and cancel it as soon as `stop()` is true.

        Return None if the work was cancelled. A cancelled activity may continue until
        its end is known, so this method waits for the end: up to a heartbeat timeout if
        the worker is lost. A forced teardown waits only `FORCED_CANCELLATION`.
        """
        task = asyncio.ensure_future(work)
        await workflow.wait_condition(lambda: task.done() or stop())
        if task.done():
            return task.result()
        task.cancel()
        await workflow.wait_condition(lambda: task.done() or bool(self.state.forced))
        if not task.done() and not await _ends_within(task, FORCED_CANCELLATION):
            task.add_done_callback(_read_result)
            return None
        (result,) = await asyncio.gather(task, return_exceptions=True)
        return None if isinstance(result, BaseException) else result


async def _ends_within(task: "asyncio.Future[Any]", limit: timedelta) -> bool:
    try:
        await workflow.wait_condition(
            task.done, timeout=limit, timeout_summary="wait for the cancelled activity"
        )
    except TimeoutError:
        return False
    return True


def _read_result(task: "asyncio.Future[Any]") -> None:
    """Read the error of a task that no coroutine awaits.

    Otherwise Python logs that the error was never retrieved.
    """
    if not task.cancelled():
        task.exception()


def microseconds(moment: datetime) -> int:
    """Return a moment as a resource version."""
    return int(moment.timestamp() * 1_000_000)


def workflow_time() -> datetime:
    return workflow.now()
