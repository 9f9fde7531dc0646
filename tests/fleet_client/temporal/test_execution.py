"""The description of a workflow whose tasks fail."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from api_types.resources.kinds import BY_KIND
from api_types.sections.temporal import TemporalSettings
from api_types.settings import Settings
from client.commands.inspect.describe import description
from fleet_client.errors import NoAnswer
from fleet_client.refs.targets import Target
from fleet_client.temporal.connection import connect
from fleet_client.temporal.control_plane import ControlPlane
from testbed.running import Running
from tests.environment.waiting import pauses

pytestmark = pytest.mark.testbed("shared")


@workflow.defn(name="Broken")
class Broken:
    """After a signal, each of its tasks fails."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def wreck(self) -> None:
        raise RuntimeError("no way to go on")

    @workflow.query
    def describe(self) -> dict[str, Any]:
        return {"kind": "ModelDeployment"}


async def test_a_failing_workflow_task_is_distinguished_from_a_missing_worker(
    testbed: Running,
) -> None:
    target = Target.of(BY_KIND["ModelDeployment"], f"t-{uuid.uuid4().hex[:8]}", "qwen")
    settings = Settings(temporal=TemporalSettings(address=testbed.temporal_address))
    client, queue = await connect(settings), uuid.uuid4().hex
    plane = ControlPlane(client, settings)
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Broken],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        handle = await client.start_workflow(
            Broken.run,
            id=target.workflow_id,
            task_queue=queue,
            task_timeout=timedelta(seconds=2),
        )
        try:
            assert await plane.describe(target) == {"kind": "ModelDeployment"}
            await handle.signal(Broken.wreck)
            for _ in pauses():
                with pytest.raises(NoAnswer) as failed:
                    await description(plane, target)
                if "its workflow task fails" in failed.value.message:
                    break
            assert (
                failed.value.message
                == f"the workflow of {target.title} cannot answer: its workflow task fails"
            )
            attempt, why = failed.value.details[-1].split(": ", 1)
            assert attempt.startswith("workflow task, attempt ")
            assert why == "no way to go on"
        finally:
            await handle.terminate()
