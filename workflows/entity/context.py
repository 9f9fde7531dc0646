"""What the parts of an entity workflow may use of their entity.

A workflow class has signals, queries and one loop; what it does is in parts. A part gets this context: the carried state, conditions
and events, the next pass of the loop, signals to other entities, and `publish`, which shows the present state before a long step and is
the only call back into the workflow. A part may get other parts too, but never the workflow itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from temporalio import workflow

from activities.messaging.entity_client import EntityClient
from api_types import clock
from api_types.messages.delivery import EntityRef, MessageT, ReceiverT, Signal, SignalRequest
from workflows.entity.calls import activity_options
from workflows.entity.calls.sending import send_all
from workflows.entity.conditions import REFUSALS_KEPT, with_condition, with_event
from workflows.entity.state import EntityState

StateT_co = TypeVar("StateT_co", bound=EntityState, covariant=True)
ResultT = TypeVar("ResultT")

# How long a forced teardown waits for the end of an activity that it cancelled. A worker that runs it is told with its next heartbeat.
FORCED_CANCELLATION = timedelta(seconds=2)


class EntityContext(Generic[StateT_co]):
    """The object of an entity workflow, and its place in the reconcile loop.

    Outside a workflow it needs an id and a clock; all but `run_until` and what sends a signal works there too. `moment` gives the time.
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
        """`moment` is the time for waits and conditions, and `clock` the time of the server."""
        self.kind = kind
        self.state = state
        self._written = state.written
        self.publish = publish
        self.moment = moment or workflow_time
        # Numbers follow the server: the time for waits stays ahead after a step of the clock.
        self._clock = clock or self.moment
        _, *scope, self.name = (workflow_id or workflow.info().workflow_id).split("/")
        self.namespace = scope[0] if scope else ""
        self.queued = True
        self.requeue_time: datetime | None = None
        # Called before this run ends: they stop what runs beside the reconcile loop.
        self.on_end: list[Callable[[], None]] = []

    @property
    def title(self) -> str:
        """Name the object for people."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    def now(self) -> str:
        """Give the workflow's time as Kubernetes writes it."""
        return clock.timestamp(self.moment())

    def next_number(self, last: int) -> int:
        """Number a message above those that were sent before.

        An attempt at a workflow task whose worker was lost, or that a new signal made void, leaves no trace in the state but may have sent
        messages. What is decided instead is another message, so it must not have the number of one of these: they were sent earlier.
        """
        return max(last + 1, int(self._clock().timestamp() * 1000))

    def next_registration(self) -> int:
        """Number a registration at another object, or another message that a newer one replaces, above all that this object has sent."""
        self.state.registration = self.next_number(self.state.registration)
        return self.state.registration

    # --- the object's status ------------------------------------------------------------------------------------------------------

    def set_condition(self, kind: str, status: str, reason: str, message: str = "") -> None:
        """Set a condition."""
        changed = with_condition(self.state.conditions, kind, status, reason, message, now=self.now(), generation=self.state.generation)
        if changed is not self.state.conditions:
            self.state.conditions = changed
            self.mark_changed()

    def remove_condition(self, kind: str) -> None:
        """Remove a condition that has nothing to say any more."""
        others = [condition for condition in self.state.conditions if condition.type != kind]
        if len(others) != len(self.state.conditions):
            self.state.conditions = others
            self.mark_changed()

    def record_event(self, kind: str, reason: str, message: str) -> None:
        """Record an event; callers do so on transitions only."""
        self.state.events = with_event(self.state.events, kind, reason, message, now=self.now())
        self.mark_changed()

    def record_report(self, kind: str, reason: str, message: str) -> bool:
        """Record what another system reports; False if that repeats what it has reported before. The caller marks the change.

        Few of a reason are kept: no system may displace what this object itself records.
        """
        self.state.events = with_event(self.state.events, kind, reason, message, now=self.now(), of_reason_max=REFUSALS_KEPT)
        return self.state.events[-1].count == 1

    def record_refusal(self, reason: str, message: str) -> None:
        """Record what was sent and is not done. It changes nothing, so nothing is reconciled and no user's change conflicts with it."""
        self.state.events = with_event(self.state.events, "Warning", reason, message, now=self.now(), of_reason_max=REFUSALS_KEPT)

    def mark_changed(self) -> None:
        """Raise the resource version and requeue. It is the time in microseconds, so that versions of different objects can be compared."""
        self.state.resource_version = max(self.state.resource_version + 1, microseconds(self._clock()))
        if self.state.written != self._written:
            self._written, self.state.manifest_version = self.state.written, self.state.resource_version
        self.requeue()

    def is_manifest_of(self, version: str) -> bool:
        """Whether labels, annotations and spec are still those that the object had at a resource version."""
        if version == str(self.state.resource_version):
            return True
        known = version.isdecimal() and self.state.manifest_version > 0
        return known and self.state.manifest_version <= int(version) <= self.state.resource_version

    # --- the next pass ------------------------------------------------------------------------------------------------------------

    def requeue(self) -> None:
        """Reconcile again right after the present pass."""
        self.queued = True

    def requeue_after(self, delay: timedelta) -> None:
        """Reconcile again after a delay; of several delays the shortest holds."""
        self.requeue_at(self.moment() + delay)

    def requeue_at(self, time: datetime) -> None:
        """Reconcile again at a time; of several times the earliest holds."""
        self.requeue_time = time if self.requeue_time is None else min(time, self.requeue_time)

    def is_future(self, moment: str) -> bool:
        """Tell whether a moment (ISO 8601) is still to come."""
        return datetime.fromisoformat(moment) > self.moment()

    # --- work ---------------------------------------------------------------------------------------------------------------------

    async def signal(self, to: EntityRef[ReceiverT], signal: Signal[ReceiverT, MessageT], message: MessageT) -> bool:
        """Signal another entity; False when it does not run."""
        return await self.send(signal.request(to, message))

    async def send(self, request: SignalRequest, *, recorded: bool = False) -> bool:
        """Send a signal that was written before; False when its receiver does not run. `recorded`: as `signal_recorded` does."""
        if recorded:
            return not await send_all([request], f"signal {request.workflow_id}: {request.signal}")
        return await workflow.execute_local_activity_method(
            EntityClient.signal,
            request,
            **activity_options.local(activity_options.ENTITY_CALL, f"signal {request.workflow_id}: {request.signal}"),
        )

    async def signal_recorded(self, to: EntityRef[ReceiverT], signal: Signal[ReceiverT, MessageT], message: MessageT) -> bool:
        """Signal another entity when the decision to do so is in the history; False when it does not run.

        For what is not sent again: a task that is executed twice may decide the second time that there is nothing to send, because it
        does not know that its first attempt has sent something else.
        """
        return await self.send(signal.request(to, message), recorded=True)

    async def run_until(self, stop: Callable[[], bool], work: Awaitable[ResultT]) -> ResultT | None:
        """Do some work, but cancel it as soon as `stop()` holds; None if it was cancelled.

        What was cancelled may still act until its end is known, so that is waited for: up to a heartbeat timeout if its worker is lost.
        Whoever forces a teardown does not wait so long.
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
        await workflow.wait_condition(task.done, timeout=limit, timeout_summary="wait for what was cancelled")
    except TimeoutError:
        return False
    return True


def _read_result(task: "asyncio.Future[Any]") -> None:
    """Read the error of a task that no coroutine waits for, or Python would log that it was never retrieved."""
    if not task.cancelled():
        task.exception()


def microseconds(moment: datetime) -> int:
    """Give a moment as a resource version."""
    return int(moment.timestamp() * 1_000_000)


def workflow_time() -> datetime:
    """Give the time of the workflow that runs."""
    return workflow.now()
