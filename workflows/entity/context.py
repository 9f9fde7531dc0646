"""What the parts of an entity workflow may use of their entity.

A workflow class has signals, queries and one loop; what it does is in parts. A part gets this context: the carried state, conditions
and events, the next pass of the loop, signals to other entities, and `publish`, which shows the present state before a long step and is
the only call back into the workflow. A part may get other parts too, but never the workflow itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from temporalio import workflow

from activities.messaging.entity_client import EntityClient
from api_types import clock
from api_types.messages.delivery import EntityRef, MessageT, ReceiverT, Signal, SignalRequest
from workflows.entity import activity_options
from workflows.entity.conditions import with_condition, with_event
from workflows.entity.state import EntityState

StateT_co = TypeVar("StateT_co", bound=EntityState, covariant=True)
ResultT = TypeVar("ResultT")


class EntityContext(Generic[StateT_co]):
    """The object of an entity workflow, and its place in the reconcile loop."""

    def __init__(self, kind: str, state: StateT_co, publish: Callable[[], None]) -> None:
        self.kind = kind
        self.state = state
        self.publish = publish
        _, *scope, self.name = workflow.info().workflow_id.split("/")
        self.namespace = scope[0] if scope else ""
        self.queued = True
        self.requeue_time: datetime | None = None

    @property
    def title(self) -> str:
        """Name the object for people."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    def now(self) -> str:
        """Give the workflow's time as Kubernetes writes it."""
        return clock.timestamp(workflow.now())

    # --- the object's status ------------------------------------------------------------------------------------------------------

    def set_condition(self, kind: str, status: str, reason: str, message: str = "") -> None:
        """Set a condition."""
        changed = with_condition(self.state.conditions, kind, status, reason, message, now=self.now(), generation=self.state.generation)
        if changed is not self.state.conditions:
            self.state.conditions = changed
            self.mark_changed()

    def record_event(self, kind: str, reason: str, message: str) -> None:
        """Record an event; callers do so on transitions only."""
        self.state.events = with_event(self.state.events, kind, reason, message, now=self.now())
        self.mark_changed()

    def mark_changed(self) -> None:
        """Raise the resource version and requeue."""
        self.state.resource_version += 1
        self.requeue()

    # --- the next pass ------------------------------------------------------------------------------------------------------------

    def requeue(self) -> None:
        """Reconcile again right after the present pass."""
        self.queued = True

    def requeue_after(self, delay: timedelta) -> None:
        """Reconcile again after a delay; of several delays the shortest holds."""
        self.requeue_at(workflow.now() + delay)

    def requeue_at(self, time: datetime) -> None:
        """Reconcile again at a time; of several times the earliest holds."""
        self.requeue_time = time if self.requeue_time is None else min(time, self.requeue_time)

    def is_future(self, moment: str) -> bool:
        """Tell whether a moment (ISO 8601) is still to come."""
        return datetime.fromisoformat(moment) > workflow.now()

    # --- work ---------------------------------------------------------------------------------------------------------------------

    async def signal(self, to: EntityRef[ReceiverT], signal: Signal[ReceiverT, MessageT], message: MessageT) -> bool:
        """Signal another entity; False when it does not run."""
        return await self.send(signal.request(to, message))

    async def send(self, request: SignalRequest) -> bool:
        """Send a signal that was written before; False when its receiver does not run."""
        return await workflow.execute_local_activity_method(
            EntityClient.signal,
            request,
            **activity_options.local(activity_options.ENTITY_CALL, f"signal {request.workflow_id}: {request.signal}"),
        )

    async def run_until(self, stop: Callable[[], bool], work: Awaitable[ResultT]) -> ResultT | None:
        """Do some work, but cancel it as soon as `stop()` holds; None if it was cancelled."""
        task = asyncio.ensure_future(work)
        await workflow.wait_condition(lambda: task.done() or stop())
        if task.done():
            return task.result()
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        return None if isinstance(result, BaseException) else result
