"""Behaviour of the Temporal SDK that our workflows need, in the runner of our workers.

Not every release has it.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

from testbed.running import Running
from tests.workflows.environment.harness import connected
from worker import build_worker
from workflows import registry
from workflows.runner import GuardedRunner

WORKFLOWS = 6
STEPS = 30
POLL_SECONDS = 0.02
# On a bad release the workflows stop within seconds.
BOUND = timedelta(seconds=60)


@activity.defn
async def return_bool(number: int) -> bool:
    """Take about as long as a query of the workflow."""
    await asyncio.sleep(number % 4 * POLL_SECONDS / 2)
    return True


@activity.defn
async def return_dict(number: int) -> dict[str, int]:
    """Take as long, and return another type."""
    await return_bool(number)
    return {"number": number}


@workflow.defn
class SignalledWorkflow:
    """Like an entity.

    Signals choose the next local activity, and sometimes the workflow waits for it with
    a timer.
    """

    def __init__(self) -> None:
        self.received = 0

    @workflow.signal
    def count(self) -> None:
        self.received += 1

    @workflow.query
    def slow_query(self) -> int:
        """Answer slowly, so that a local activity may end meanwhile."""
        time.sleep(POLL_SECONDS)
        return self.received

    def received_more_than(self, received: int) -> bool:
        return self.received != received

    @workflow.run
    async def run(self) -> None:
        for _ in range(STEPS):
            received = self.received
            step = return_dict if received % 2 else return_bool
            await workflow.execute_local_activity(
                step, received, start_to_close_timeout=timedelta(seconds=10)
            )
            if received % 3 == 0:
                with contextlib.suppress(TimeoutError):
                    await workflow.wait_condition(
                        partial(self.received_more_than, received), timeout=0.2
                    )


async def signal_and_query(handle: WorkflowHandle[SignalledWorkflow, None]) -> None:
    """Signal and query a workflow until it has ended."""
    ended = asyncio.create_task(handle.result())

    async def again(act: Callable[[], Awaitable[Any]]) -> None:
        while not ended.done():
            # The workflow may be ending, the server may have reached its limit of
            # queries, or the guard rejects the query.
            with contextlib.suppress(RPCError, WorkflowQueryFailedError):
                await act()
            await asyncio.sleep(POLL_SECONDS)

    await asyncio.gather(
        ended,
        again(lambda: handle.signal(SignalledWorkflow.count)),
        again(lambda: handle.query(SignalledWorkflow.slow_query)),
    )


@pytest.mark.testbed
async def test_a_workflow_queried_while_a_local_activity_ends_can_be_replayed(
    testbed: Running,
) -> None:
    async with connected(testbed) as client:
        queue = f"sdk-{uuid.uuid4().hex[:8]}"
        # Our workers' guard rejects a query that would let a workflow advance. The
        # sandbox is irrelevant here.
        guarded = GuardedRunner(UnsandboxedWorkflowRunner())
        async with Worker(
            client,
            task_queue=queue,
            workflows=[SignalledWorkflow],
            activities=[return_bool, return_dict],
            workflow_runner=guarded,
        ):
            handles = await asyncio.gather(
                *(start(client, queue) for _ in range(WORKFLOWS))
            )
            await asyncio.gather(*(signal_and_query(handle) for handle in handles))
        replayer = Replayer(
            workflows=[SignalledWorkflow],
            workflow_runner=registry.unsandboxed(),
            data_converter=client.data_converter,
        )
        for handle in handles:
            await replayer.replay_workflow(await handle.fetch_history())


@workflow.defn
class Slow:
    """Compute for longer than the SDK allows by default."""

    @workflow.run
    async def run(self) -> None:
        """Stand in for a workflow that handles thousands of signals on a busy processor."""
        time.sleep(3)  # noqa: ASYNC251


@pytest.mark.testbed
async def test_a_workflow_delayed_by_a_busy_processor_is_not_reported_as_deadlock(
    testbed: Running,
) -> None:
    async with connected(testbed) as client:
        queue = f"sdk-{uuid.uuid4().hex[:8]}"
        async with build_worker(
            client,
            queue,
            workflows=[Slow],
            workflow_runner=GuardedRunner(UnsandboxedWorkflowRunner()),
        ):
            handle = await client.start_workflow(
                Slow.run, id=queue, task_queue=queue, execution_timeout=BOUND
            )
            await handle.result()
        kinds = [
            EventType.Name(event.event_type)
            async for event in handle.fetch_history_events()
        ]
        assert "EVENT_TYPE_WORKFLOW_TASK_FAILED" not in kinds
        assert kinds.count("EVENT_TYPE_WORKFLOW_TASK_COMPLETED") == 1


async def start(client: Client, queue: str) -> WorkflowHandle[SignalledWorkflow, None]:
    return await client.start_workflow(
        SignalledWorkflow.run,
        id=f"{queue}-{uuid.uuid4().hex[:8]}",
        task_queue=queue,
        execution_timeout=BOUND,
    )
