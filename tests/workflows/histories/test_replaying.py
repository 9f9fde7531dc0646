"""What the tests' own replay of a server's histories does with a run that has nothing to replay."""

import asyncio
import uuid
from pathlib import Path

import pytest

from api_types import names
from api_types.clock import utc_now
from testbed.running import Running
from tests.workflows.environment.harness import connected
from tests.workflows.environment.replaying import replay_all

pytestmark = pytest.mark.testbed


async def test_a_run_that_no_worker_took_is_passed_over(testbed: Running, tmp_path: Path) -> None:
    began = utc_now()
    async with connected(testbed) as client:
        name = uuid.uuid4().hex
        handle = await client.start_workflow(
            "ModelDeployment", None, id=names.workflow_id("ModelDeployment", "unserved", name), task_queue=f"no-worker-{name}"
        )
        try:
            replay = asyncio.create_task(replay_all(client, began, tmp_path))
            # The SDK would wait for it also when it is cancelled.
            done, _ = await asyncio.wait({replay}, timeout=60)
            assert done, "the replay does not end"
            replay.result()
        finally:
            await handle.terminate("the test has ended")
