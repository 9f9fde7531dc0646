"""The executions of the simulated Temporal, with their runs, histories and activities."""

import asyncio
import builtins
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from temporalio.api.common.v1 import Payload, SearchAttributes
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_commands import ScheduleActivity, ScheduleLocalActivity
from temporalio.converter import decode_typed_search_attributes
from temporalio.worker import WorkflowInstance

from fleet_client.temporal.converter import DATA_CONVERTER

if TYPE_CHECKING:
    from tests.simulation.workers import Worker

RUNNING, COMPLETED, FAILED, TERMINATED = "RUNNING", "COMPLETED", "FAILED", "TERMINATED"
CONTINUED = "CONTINUED_AS_NEW"

EVENT_BYTES = 60
"""The bytes of an event without its payloads."""


@dataclass(eq=False)
class PendingActivity:
    """An activity that has no result yet. `state`: scheduled, started or backoff."""

    run: "Run"
    command: ScheduleActivity | ScheduleLocalActivity
    scheduled: float
    scheduled_time: datetime
    local: bool = False
    state: str = "scheduled"
    attempt: int = 1
    last_failure: Failure | None = None
    details: list[Payload] = field(default_factory=list)
    cancel_requested: bool = False
    gone: bool = False
    """The workflow has stopped waiting for it."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[Any] | None" = None
    begins: float = 0.0
    """When its present attempt was scheduled."""

    @property
    def name(self) -> str:
        """The name of its type."""
        return self.command.activity_type

    @property
    def queue(self) -> str:
        """Its task queue; a local activity has the queue of its workflow."""
        return (
            self.run.queue
            if isinstance(self.command, ScheduleLocalActivity)
            else self.command.task_queue
        )

    def request_cancel(self) -> None:
        """Request its cancellation, which its next heartbeat reports."""
        self.cancel_requested = True
        self.changed.set()

    def forget(self) -> None:
        """Make the server ignore its later results."""
        self.gone = True
        self.changed.set()


@dataclass(frozen=True)
class RecordedTask:
    """A completed workflow task: activations with their commands, and the recorded patches."""

    activations: list[tuple[WorkflowActivation, bytes]]
    patches: list[str]


@dataclass(eq=False)
class Run:
    """One run of an execution."""

    workflow_id: str
    run_id: str
    kind: str
    queue: str
    first_run_id: str
    continued: str
    seed: int
    input: list[Payload]
    started: float
    start_time: datetime
    started_memo: dict[str, Payload]
    started_attributes: dict[str, Payload]
    memo_fields: dict[str, Payload] = field(default_factory=dict)
    attribute_fields: dict[str, Payload] = field(default_factory=dict)
    status: str = RUNNING
    close_time: datetime | None = None
    closed: float | None = None
    next_run_id: str = ""
    reason: str = ""
    events: int = 0
    bytes: int = 0
    suggested: bool = False
    tasks: int = 0
    task_events: int = 0
    inbox: list[WorkflowActivationJob] = field(default_factory=list)
    taken: list[WorkflowActivationJob] = field(default_factory=list)
    task_open: bool = False
    task_planned: bool = False
    unfinished_task: bool = False
    """So far the task has only sent heartbeats, so another task follows even without
    new events.
    """
    time: datetime | None = None
    recorded: list[RecordedTask] = field(default_factory=list)
    patches: set[str] = field(default_factory=set)
    timers: dict[int, asyncio.TimerHandle] = field(default_factory=dict)
    activities: dict[int, PendingActivity] = field(default_factory=dict)
    updates: "dict[str, asyncio.Future[Any]]" = field(default_factory=dict)
    worker: "Worker | None" = None
    instance: WorkflowInstance | None = None
    ahead: bool = False
    """The instance has made progress that no recorded task has."""
    saved: WorkflowInstance | None = None
    """The instance of a worker that died after the last recorded task."""
    unreplayed: "Worker | None" = None
    """The worker that continued with a saved instance. The run is replayed at its end."""
    failures: list[str] = field(default_factory=list)
    payloads: list[builtins.bytes] = field(default_factory=list)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no workflow task is open."""
    silent_until: float = 0.0
    full_until: float = 0.0
    request_id: str = ""
    """The id of the request that started the run, if its client chose one."""
    reset_from: tuple[str, ...] = ()
    """The ids of the runs whose tasks this run starts with, after a reset."""
    reset_time: datetime | None = None
    ended: Any = None
    """The workflow object of the product at the end of the run."""

    def __post_init__(self) -> None:
        self.memo_fields = dict(self.started_memo)
        self.attribute_fields = dict(self.started_attributes)
        self.idle.set()

    @property
    def is_open(self) -> bool:
        """Whether it runs."""
        return self.status == RUNNING

    @property
    def workflow(self) -> Any:
        """The workflow object of the product, or None while it is in no cache. Read it only."""
        found: Any = self.instance
        while found is not None and hasattr(found, "_inner"):
            found = found._inner
        return None if found is None else found._object

    @property
    def memo(self) -> dict[str, Any]:
        """The memo."""
        return {key: value_of(payload) for key, payload in self.memo_fields.items()}

    @property
    def attributes(self) -> dict[str, Any]:
        """The search attributes by name."""
        return attributes_of(self.attribute_fields)

    def add_event(self, payload_bytes: int = 0, count: int = 1) -> None:
        """Count events of the history."""
        self.events += count
        self.bytes += EVENT_BYTES * count + payload_bytes


@dataclass(eq=False)
class Execution:
    """All runs of a workflow id, the newest last."""

    workflow_id: str
    runs: list[Run] = field(default_factory=list)

    @property
    def run(self) -> Run:
        """The newest run."""
        return self.runs[-1]


def value_of(payload: Payload) -> Any:
    """Decode a payload as JSON."""
    return DATA_CONVERTER.payload_converter.from_payloads([payload])[0]


def attributes_of(fields: dict[str, Payload]) -> dict[str, Any]:
    """Decode search attributes."""
    typed = decode_typed_search_attributes(SearchAttributes(indexed_fields=fields))
    return {pair.key.name: pair.value for pair in typed}
