"""The tests' own replay of a server's histories, for runs that still run and runs
without anything to replay.
"""

import asyncio
import json
import uuid
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory

from api_types import names
from api_types.clock import utc_now
from testbed.running import Running
from tests.workflows.environment.harness import connected
from tests.workflows.environment.replaying import completed_part, replay_all, replayer
from tests.workflows.histories.recorded import LIFE, recorded

RECORDED = recorded("ModelReplica", LIFE)[-1]
# A signal within this many events makes the replica call a local activity.
EVENTS = 60
# The first replay of a process loads all workflows, even while every processor is busy.
STUCK_SECONDS = 120


@pytest.mark.slow
async def test_a_running_workflow_is_replayed_up_to_its_last_completed_task() -> None:
    recorded = json.loads(RECORDED.read_text())["events"][:EVENTS]
    workflow_id = recorded[0]["workflowExecutionStartedEventAttributes"]["workflowId"]
    events = WorkflowHistory.from_json(workflow_id, {"events": recorded}).events
    for end in range(1, EVENTS + 1):
        history = completed_part(WorkflowHistory(workflow_id, events[:end]))
        if history is None:
            assert all(
                event.event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
                for event in events[:end]
            )
            continue
        replay = asyncio.create_task(replayer().replay_workflow(history))
        done, _ = await asyncio.wait({replay}, timeout=STUCK_SECONDS)
        assert done, f"the replay of {end} events does not end"
        assert replay.result().replay_failure is None


@pytest.mark.testbed
async def test_a_run_that_no_worker_took_is_skipped(
    testbed: Running, tmp_path: Path
) -> None:
    began = utc_now()
    async with connected(testbed) as client:
        name = uuid.uuid4().hex
        handle = await client.start_workflow(
            "ModelDeployment",
            None,
            id=names.workflow_id("ModelDeployment", "unserved", name),
            task_queue=f"no-worker-{name}",
        )
        try:
            replay = asyncio.create_task(replay_all(client, began, tmp_path))
            # The SDK would wait for it even if it is cancelled.
            done, _ = await asyncio.wait({replay}, timeout=STUCK_SECONDS)
            assert done, "the replay does not end"
            replay.result()
        finally:
            await handle.terminate("the test has ended")
