"""A workflow advances only with a workflow task, even while queries arrive late."""

import asyncio
import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

import pytest
from temporalio import activity, workflow
from temporalio.bridge.proto.workflow_activation import (
    WorkflowActivation,
    WorkflowActivationJob,
)
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    QueryWorkflowInput,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.service import RPCError
from temporalio.worker import (
    Replayer,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkflowInstance,
    WorkflowRunner,
)

from api_types.errors import QUERY_REFUSED
from fleet_client.temporal.queries import RetriedQueries
from testbed.running import Running
from workflows.runner import GuardedRunner

WORKFLOWS = 12
# This number of refusals proves that the worker was late often enough. A timeout would
# prove nothing.
REFUSED_MIN = 5
BOUND_SECONDS = 90.0
STICKY = timedelta(milliseconds=150)


class Recording:
    """A runner whose instances record their activations."""

    def __init__(self) -> None:
        self.activations: list[WorkflowActivation] = []

    def create_instance(self, _details: Any) -> WorkflowInstance:
        return cast("WorkflowInstance", self)

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        self.activations.append(act)
        return WorkflowActivationCompletion(run_id=act.run_id)


def activation(task: int, events: int, *jobs: str) -> WorkflowActivation:
    """Return the activation of a task with this history length and these jobs."""
    act = WorkflowActivation(
        run_id="run", history_length=events, history_size_bytes=100 * task
    )
    for job in jobs:
        made = WorkflowActivationJob()
        getattr(made, job).SetInParent()
        act.jobs.append(made)
    return act


START = activation(1, 3, "initialize_workflow")
GUARDED = [
    ("the next task", activation(2, 8, "signal_workflow"), True),
    (
        "a local activity ends within the task",
        activation(1, 3, "resolve_activity"),
        True,
    ),
    (
        "a local activity ends later within the task",
        activation(2, 3, "resolve_activity"),
        True,
    ),
    ("a query", activation(1, 5, "query_workflow"), True),
    ("an eviction", activation(1, 5, "remove_from_cache"), True),
    ("a signal before its task", activation(1, 5, "signal_workflow"), False),
    (
        "an activity's result before its task",
        activation(1, 6, "resolve_activity"),
        False,
    ),
]


@pytest.mark.parametrize(
    ("story", "act", "passes"), GUARDED, ids=[row[0] for row in GUARDED]
)
def test_a_job_without_its_own_task_is_rejected(
    story: str, act: WorkflowActivation, passes: bool
) -> None:
    inner = Recording()
    instance = GuardedRunner(cast("WorkflowRunner", inner)).create_instance(
        cast("Any", None)
    )
    instance.activate(START)
    completion = instance.activate(act)
    assert (inner.activations == [START, act]) is passes, story
    assert completion.failed.failure.message == ("" if passes else QUERY_REFUSED)
    assert completion.run_id == "run"


@activity.defn
async def some_work(number: int) -> int:
    """Take a moment."""
    await asyncio.sleep(number % 7 * 0.04)
    return number


@workflow.defn
class Reconciling:
    """Like an entity.

    Its next order depends on whether a signal arrived before or after the last result.
    """

    def __init__(self) -> None:
        self.received = self.seen = 0
        self.ending = False

    @workflow.run
    async def run(self) -> None:
        """Run until the workflow is ended."""
        while not self.ending:
            self.seen = self.received
            await workflow.execute_activity(
                some_work,
                self.seen,
                start_to_close_timeout=timedelta(minutes=1),
                activity_id=f"{self.seen}",
            )
            if self.received == self.seen:
                await workflow.wait_condition(
                    lambda: self.received != self.seen or self.ending
                )
            else:
                await workflow.sleep(0.01)

    @workflow.signal
    def count(self) -> None:
        self.received += 1

    @workflow.signal
    def end(self) -> None:
        self.ending = True

    @workflow.query
    def counted(self) -> int:
        return self.received


class Load:
    """Signals and queries for a worker that is always late."""

    def __init__(self) -> None:
        self.refused = 0
        self.deadline = time.monotonic() + BOUND_SECONDS

    @property
    def goes_on(self) -> bool:
        return self.refused < REFUSED_MIN and time.monotonic() < self.deadline

    async def repeat(self, act: Callable[[], Awaitable[Any]], pause: float) -> None:
        while self.goes_on:
            try:
                with contextlib.suppress(
                    RPCError
                ):  # more queries at once than the server keeps
                    await act()
            except WorkflowQueryFailedError as error:
                assert QUERY_REFUSED in str(error)  # noqa: PT017 - others are none
                self.refused += 1
            await asyncio.sleep(pause)

    async def hold_up_the_worker(self) -> None:
        while self.goes_on:
            time.sleep(0.4)  # noqa: ASYNC251 - the event loop is the worker's
            await asyncio.sleep(0.1)


@pytest.mark.testbed
async def test_a_late_query_does_not_change_a_workflows_behaviour(
    testbed: Running,
) -> None:
    client = await Client.connect(testbed.temporal_address)
    queue = f"late-{uuid.uuid4().hex[:8]}"
    load = Load()
    guarded = GuardedRunner(UnsandboxedWorkflowRunner())
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Reconciling],
        activities=[some_work],
        workflow_runner=guarded,
        sticky_queue_schedule_to_start_timeout=STICKY,
        max_concurrent_workflow_tasks=4,
    ):
        handles = [
            await client.start_workflow(
                Reconciling.run, id=f"{queue}/{i}", task_queue=queue
            )
            for i in range(WORKFLOWS)
        ]
        await asyncio.gather(
            load.hold_up_the_worker(),
            *(
                load.repeat(
                    lambda handle=handle: handle.signal(Reconciling.count),  # type: ignore[misc]
                    0.15,
                )
                for handle in handles
            ),
            *(
                load.repeat(
                    lambda handle=handle: handle.query(Reconciling.counted),  # type: ignore[misc]
                    0.05,
                )
                for handle in handles
            ),
        )
        await asyncio.gather(*(ended(handle) for handle in handles))
    assert load.refused >= REFUSED_MIN
    replayer = Replayer(
        workflows=[Reconciling], workflow_runner=UnsandboxedWorkflowRunner()
    )
    failures = Counter[str]()
    for handle in handles:
        history = await handle.fetch_history()
        failures["tasks"] += sum(
            event.HasField("workflow_task_failed_event_attributes")
            for event in history.events
        )
        failures["replays"] += (
            await replayer.replay_workflow(history, raise_on_replay_failure=False)
        ).replay_failure is not None
    assert failures == {"tasks": 0, "replays": 0}


async def ended(handle: WorkflowHandle[Any, Any]) -> None:
    await handle.signal(Reconciling.end)
    await handle.result()


class CountedQueries(Interceptor):
    """Counts the queries that reach the server."""

    def __init__(self) -> None:
        self.count = 0

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        counted = self

        class Counting(OutboundInterceptor):
            async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002
                counted.count += 1
                return await super().query_workflow(input)

        return Counting(next)


@pytest.mark.testbed
async def test_a_query_of_a_run_that_was_terminated_before_its_next_task_ends_at_once(
    testbed: Running,
) -> None:
    sent = CountedQueries()
    client = await Client.connect(
        testbed.temporal_address, interceptors=[RetriedQueries(), sent]
    )
    queue = f"closed-{uuid.uuid4().hex[:8]}"

    def a_worker() -> Worker:
        return Worker(
            client,
            task_queue=queue,
            workflows=[Reconciling],
            activities=[some_work],
            workflow_runner=GuardedRunner(UnsandboxedWorkflowRunner()),
        )

    async with a_worker():
        handle = await client.start_workflow(
            Reconciling.run, id=f"{queue}/1", task_queue=queue
        )
        assert await handle.query(Reconciling.counted) == 0
    # No worker begins the task of this signal.
    await handle.signal(Reconciling.count)
    await handle.terminate()
    sent.count = 0
    async with a_worker():
        with pytest.raises(WorkflowQueryFailedError, match=QUERY_REFUSED):
            await handle.query(Reconciling.counted)
    assert sent.count == 2
