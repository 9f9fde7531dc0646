"""An object under another key is reported as such, not as missing or unanswered."""

import base64
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from api_types.resources.kinds import BY_KIND
from api_types.sections.temporal import EncryptionSettings, TemporalSettings
from api_types.settings import Settings
from fleet_client.errors import CommandFailed
from fleet_client.refs.targets import Target
from fleet_client.temporal.connection import connect
from fleet_client.temporal.control_plane import ControlPlane
from testbed.running import Running

pytestmark = pytest.mark.testbed("shared")


@workflow.defn(name="Sealed")
class Sealed:
    """Answer one query until cancelled."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def describe(self) -> dict[str, Any]:
        return {"kind": "ModelDeployment"}


def sealed_with(folder: Path, running: Running, **keys: bytes) -> Settings:
    """Settings with these keys. The first key is active."""
    files = {}
    for key_id, key in keys.items():
        files[key_id] = folder / key_id
        files[key_id].write_text(base64.b64encode(key).decode())
    encryption = EncryptionSettings(keys=files, active_key=next(iter(keys), ""))
    return Settings(
        temporal=TemporalSettings(address=running.temporal_address),
        encryption=encryption,
    )


async def test_an_object_that_is_encrypted_with_another_key_is_reported_as_such(
    testbed: Running, tmp_path: Path
) -> None:
    target = Target.of(BY_KIND["ModelDeployment"], f"t-{uuid.uuid4().hex[:8]}", "qwen")
    right = sealed_with(tmp_path, testbed, one=os.urandom(32))
    queue = uuid.uuid4().hex
    client = await connect(right)
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Sealed],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        handle = await client.start_workflow(
            Sealed.run, id=target.workflow_id, task_queue=queue
        )
        try:
            assert await ControlPlane(client, right).describe(target) == {
                "kind": "ModelDeployment"
            }
            for wrong in (
                sealed_with(tmp_path, testbed),
                sealed_with(tmp_path, testbed, two=os.urandom(32)),
            ):
                with pytest.raises(
                    CommandFailed,
                    match="is encrypted with a key that this program does not have",
                ):
                    await ControlPlane(await connect(wrong), wrong).describe(target)
        finally:
            await handle.terminate()
