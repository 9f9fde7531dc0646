"""What our workflows need from the Temporal SDK, and not every release of it gives."""

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
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

from testbed.running import Running
from tests.workflows.environment.harness import connected
from worker import build_worker

LIVES = 6
STEPS = 30
POLL_SECONDS = 0.02
# On a bad release the workflows stand still within seconds.
BOUND = timedelta(seconds=60)


@activity.defn
async def told_even(number: int) -> bool:
    """Take about as long as a look at the workflow."""
    await asyncio.sleep(number % 4 * POLL_SECONDS / 2)
    return True


@activity.defn
async def told_odd(number: int) -> dict[str, int]:
    """The same, with an outcome of another type."""
    await told_even(number)
    return {"number": number}


@workflow.defn
class Attentive:
    """Like an entity: signals decide which local activity comes next, and now and then it waits for one with a timer."""

    def __init__(self) -> None:
        self.heard = 0

    @workflow.signal
    def say(self) -> None:
        """Note a word."""
        self.heard += 1

    @workflow.query
    def look(self) -> int:
        """Answer slowly, so that a local activity may end meanwhile."""
        time.sleep(POLL_SECONDS)
        return self.heard

    def heard_more_than(self, heard: int) -> bool:
        """Whether another signal arrived."""
        return self.heard != heard

    @workflow.run
    async def run(self) -> None:
        """Run for some steps."""
        for _ in range(STEPS):
            heard = self.heard
            tell = told_odd if heard % 2 else told_even
            await workflow.execute_local_activity(tell, heard, start_to_close_timeout=timedelta(seconds=10))
            if heard % 3 == 0:
                with contextlib.suppress(TimeoutError):
                    await workflow.wait_condition(partial(self.heard_more_than, heard), timeout=0.2)


async def pester(handle: WorkflowHandle[Attentive, None]) -> None:
    """Speak to a workflow and look at it until it has ended."""
    ended = asyncio.create_task(handle.result())

    async def again(act: Callable[[], Awaitable[Any]]) -> None:
        while not ended.done():
            # It may end just now, or more is asked at once than the server keeps.
            with contextlib.suppress(RPCError):
                await act()
            await asyncio.sleep(POLL_SECONDS)

    await asyncio.gather(ended, again(lambda: handle.signal(Attentive.say)), again(lambda: handle.query(Attentive.look)))


@pytest.mark.testbed
async def test_what_was_looked_at_while_a_local_activity_ended_can_be_replayed(testbed: Running) -> None:
    async with connected(testbed) as client:
        queue = f"sdk-{uuid.uuid4().hex[:8]}"
        here = UnsandboxedWorkflowRunner()
        async with Worker(client, task_queue=queue, workflows=[Attentive], activities=[told_even, told_odd], workflow_runner=here):
            handles = await asyncio.gather(*(start(client, queue) for _ in range(LIVES)))
            await asyncio.gather(*(pester(handle) for handle in handles))
        replayer = Replayer(workflows=[Attentive], workflow_runner=here, data_converter=client.data_converter)
        for handle in handles:
            await replayer.replay_workflow(await handle.fetch_history())


@workflow.defn
class Slow:
    """Computes for longer than the SDK allows by default."""

    @workflow.run
    async def run(self) -> None:
        """Stand for a workflow that handles a storm of signals on a busy processor."""
        time.sleep(3)  # noqa: ASYNC251


@pytest.mark.testbed
async def test_a_workflow_that_a_busy_processor_holds_up_is_not_taken_for_a_deadlock(testbed: Running) -> None:
    async with connected(testbed) as client:
        queue = f"sdk-{uuid.uuid4().hex[:8]}"
        async with build_worker(client, queue, workflows=[Slow], workflow_runner=UnsandboxedWorkflowRunner()):
            handle = await client.start_workflow(Slow.run, id=queue, task_queue=queue, execution_timeout=BOUND)
            await handle.result()
        kinds = [EventType.Name(event.event_type) async for event in handle.fetch_history_events()]
        assert "EVENT_TYPE_WORKFLOW_TASK_FAILED" not in kinds
        assert kinds.count("EVENT_TYPE_WORKFLOW_TASK_COMPLETED") == 1


async def start(client: Client, queue: str) -> WorkflowHandle[Attentive, None]:
    """Start one life."""
    return await client.start_workflow(Attentive.run, id=f"{queue}-{uuid.uuid4().hex[:8]}", task_queue=queue, execution_timeout=BOUND)
