"""Apply a deployment, scale it by signal and wait, with only the Temporal SDK and `api_types`.

Run it beside a fleet: `MODELPLANE_TEMPORAL__ADDRESS=127.0.0.1:PORT python examples/deploy_and_scale.py examples/testbed/demo.yaml 3`,
with the address that `modelplane up` prints.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter

from api_types import queues
from api_types.messages.entities import Scale, SetSpec
from api_types.messages.signals import ModelDeploymentSignals
from api_types.names import workflow_id
from api_types.settings import Settings
from api_types.validation.manifests import NO_CHECKS, admit_all, dump, parse


async def until_ready(handle: WorkflowHandle[Any, Any], replicas: int) -> None:
    """Print the status of the deployment until that many replicas are Ready."""
    shown = ""
    while True:
        status = (await handle.query("describe"))["status"]
        counts = status.get("replicas") or {}
        line = f"{counts.get('ready', 0)} of {replicas} Ready ({status['phase']})"
        if line != shown:
            print(shown := line)
        if counts.get("ready") == counts.get("total") == replicas:
            return
        await asyncio.sleep(0.5)


async def main(text: str, replicas: int) -> None:
    """Apply the first deployment of a manifest, then scale it."""
    settings = Settings().temporal
    client = await Client.connect(settings.address, namespace=settings.namespace, data_converter=pydantic_data_converter)
    admitted = admit_all(parse(text, "the manifest"), NO_CHECKS)
    manifest = next(one.manifest for one in admitted if one.manifest.kind == "ModelDeployment")
    handle = await client.start_workflow(
        manifest.kind,
        None,
        id=workflow_id(manifest.kind, manifest.metadata.namespace, manifest.metadata.name),
        task_queue=queues.WORKFLOWS,
        start_signal=ModelDeploymentSignals.SET_SPEC.name,
        start_signal_args=[SetSpec(by="example", manifest=dump(manifest))],
    )
    await until_ready(handle, dump(manifest)["spec"]["replicas"])
    await handle.signal(ModelDeploymentSignals.SCALE.name, Scale(by="example", replicas=replicas))
    await until_ready(handle, replicas)


asyncio.run(main(Path(sys.argv[1]).read_text(), int(sys.argv[2])))
sys.stdout.flush()
os._exit(0)  # threads of the SDK may abort Python while it finalizes (temporalio/sdk-python#300)
