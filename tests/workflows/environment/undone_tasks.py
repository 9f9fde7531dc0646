"""Workflow tasks that are executed twice.

Entities on a real Temporal server, with a worker that loses one of their tasks. Right
after a certain signal was sent, other messages arrive at its sender. If the decision to
send the signal is not in the history by then, the task is lost: its local activity
returns a result that the workflow cannot read, so the task fails and is executed again
with the new messages.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel
from temporalio import activity
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from activities.messaging.delivering import deliver
from activities.messaging.entity_client import EntityClient
from activities.messaging.search_attributes import identity_at_start
from activities.messaging.sending import send_signal
from api_types import queues
from api_types.messages.delivery import (
    EntityRef,
    MessageT,
    Signal,
    SignalBatch,
    SignalBatchResult,
    SignalRequest,
)
from api_types.messages.signals import (
    ENTITIES,
    EndpointDirectorySignals,
    FleetSchedulerSignals,
)
from api_types.sections.programs import WorkerSettings
from api_types.sections.temporal import QueueSettings
from api_types.settings import Settings
from tests.workflows.environment.harness import Json, eventually
from tests.workflows.environment.protocol_fleet import protocol_server
from tests.workflows.environment.run_before import serving_runs_before, start_continued
from worker import build_activities, build_workers

# No worker serves this queue, so signals to a workflow on it stay in its history.
UNSERVED = "unserved"
UNREADABLE: Any = "an attempt that is undone"
# An entity of an earlier test may have started it.
REPLACED = WorkflowIDConflictPolicy.TERMINATE_EXISTING
# In counted processor time. Every signal is sent within a second.
WITHIN = 15


@dataclass
class Interruption:
    """The signal after which other messages arrive at its sender. It happens once."""

    signal: Signal[Any, Any]
    is_meant: Callable[[Any], bool]
    messages: Sequence[SignalRequest]
    happened: bool = False

    def meets(self, requests: Sequence[SignalRequest]) -> bool:
        return any(
            each.signal == self.signal.name
            and self.is_meant(self.signal.parse(each.payload))
            for each in requests
        )


@dataclass
class InterruptedClient(EntityClient):
    """Send like a worker's client, but be interrupted once."""

    interruption: Interruption | None = None

    @activity.defn(name="tell")
    async def signal(self, request: SignalRequest) -> bool:
        sent = await send_signal(activity.client(), request)
        return UNREADABLE if await self._is_undone([request]) else sent

    @activity.defn(name="tell_many")
    async def signal_many(self, batch: SignalBatch) -> SignalBatchResult:
        missing = await deliver(activity.client(), batch.signals)
        return (
            UNREADABLE
            if await self._is_undone(batch.signals)
            else SignalBatchResult(missing=missing)
        )

    async def _is_undone(self, requests: Sequence[SignalRequest]) -> bool:
        now = self.interruption
        if now is None or now.happened or not now.meets(requests):
            return False
        now.happened = True
        for message in now.messages:
            await send_signal(activity.client(), message)
        return activity.info().is_local


@dataclass
class UndoneTasks:
    """The server, the worker and helpers for tests."""

    client: Client
    messaging: InterruptedClient = field(default_factory=InterruptedClient)
    _started: set[str] = field(default_factory=set)

    async def start(self, entity: EntityRef[Any], state: BaseModel) -> None:
        """Start an entity, or the directory of a namespace, after earlier runs."""
        kind, identity = _identity(entity.workflow_id)
        self._started.add(entity.workflow_id)
        carried = state.model_dump(mode="json", by_alias=True)
        await start_continued(
            self.client,
            kind,
            entity.workflow_id,
            carried,
            id_conflict_policy=REPLACED,
            **identity,
        )

    async def start_receivers(self, *entities: EntityRef[Any]) -> None:
        """Start workflows that run and do nothing."""
        for entity in entities:
            kind, identity = _identity(entity.workflow_id)
            self._started.add(entity.workflow_id)
            await self.client.start_workflow(
                kind,
                None,
                id=entity.workflow_id,
                task_queue=UNSERVED,
                id_conflict_policy=REPLACED,
                **identity,
            )

    async def end_all(self) -> None:
        """Terminate all workflows started here, so that they send nothing during the next test."""
        self.messaging.interruption = None
        for workflow_id in self._started:
            with contextlib.suppress(RPCError):  # it has ended
                await self.client.get_workflow_handle(workflow_id).terminate(
                    "the test has ended"
                )
        self._started.clear()

    async def send(self, message: SignalRequest) -> None:
        await send_signal(self.client, message)

    def interrupt(
        self,
        signal: Signal[Any, MessageT],
        is_meant: Callable[[MessageT], bool],
        *messages: SignalRequest,
    ) -> None:
        """Deliver messages right after a signal was sent for the first time."""
        self.messaging.interruption = Interruption(signal, is_meant, messages)

    async def until_received(
        self,
        by: EntityRef[Any],
        signal: Signal[Any, MessageT],
        holds: Callable[[list[MessageT]], bool],
    ) -> list[MessageT]:
        """Wait until the interruption has happened and the received signals satisfy `holds`."""

        async def received() -> list[Json]:
            history = await self.client.get_workflow_handle(
                by.workflow_id
            ).fetch_history()
            signals = [
                event.workflow_execution_signaled_event_attributes
                for event in history.events
            ]
            own = [each for each in signals if each.signal_name == signal.name]
            return [
                (await self.client.data_converter.decode(each.input.payloads))[0]
                for each in own
            ]

        def complete(messages: list[Json]) -> bool:
            interruption = self.messaging.interruption
            return (interruption is None or interruption.happened) and holds(
                [signal.parse(message) for message in messages]
            )

        found = await eventually(
            received, complete, what=f"{signal} to {by.workflow_id}", within=WITHIN
        )
        return [signal.parse(message) for message in found]


def _identity(workflow_id: str) -> tuple[str, Json]:
    kind, *scope, name = workflow_id.split("/")
    kind = next(
        each.kind
        for each in (*ENTITIES, FleetSchedulerSignals, EndpointDirectorySignals)
        if each.kind.lower() == kind
    )
    return kind, identity_at_start(kind, "/".join(scope), name)


@contextlib.asynccontextmanager
async def undone_tasks() -> AsyncIterator[UndoneTasks]:
    """Start the server and the worker, and stop them at the end."""
    async with protocol_server() as client:
        tasks = UndoneTasks(client)
        settings = Settings(
            queues=QueueSettings(serve=(queues.WORKFLOWS,)),
            worker=WorkerSettings(graceful_shutdown_seconds=0),
        )
        activities = replace(build_activities(settings), messaging=tasks.messaging)
        with ThreadPoolExecutor() as threads:
            workers = build_workers(client, settings, activities, threads)
            async with workers[queues.WORKFLOWS], serving_runs_before(client):
                yield tasks
