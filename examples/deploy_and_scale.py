"""Apply a deployment, scale it and wait, using only the Temporal SDK and `api_types`.

`modelplane up` starts a fleet and prints the address of its Temporal server. Set
MODELPLANE_TEMPORAL__ADDRESS to it, and run `python examples/deploy_and_scale.py
examples/testbed/demo.yaml 3`.
"""

import argparse
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


async def until_ready(
    handle: WorkflowHandle[Any, Any], wanted: int | None = None
) -> None:
    """Print the status until all replicas are Ready.

    Without `wanted`, use the number of replicas in the spec, which an earlier
    scaling may have changed.
    """
    shown = ""
    while True:
        seen = await handle.query("describe")
        counts = seen["status"].get("replicas") or {}
        replicas = wanted or (seen["spec"] or {}).get("replicas")
        ready = f"{counts.get('ready', 0)} of {replicas} Ready"
        line = f"{ready} ({seen['status']['phase']})"
        if line != shown:
            shown = line
            print(line)
        if counts.get("ready") == counts.get("total") == replicas:
            return
        await asyncio.sleep(0.5)


async def main(text: str, replicas: int) -> None:
    """Apply the first deployment of a manifest, then scale it."""
    settings = Settings().temporal
    client = await Client.connect(
        settings.address,
        namespace=settings.namespace,
        data_converter=pydantic_data_converter,
    )
    admitted = admit_all(parse(text, "the manifest"), NO_CHECKS)
    manifest = next(
        one.manifest for one in admitted if one.manifest.kind == "ModelDeployment"
    )
    metadata = manifest.metadata
    handle = await client.start_workflow(
        manifest.kind,
        None,
        id=workflow_id(manifest.kind, metadata.namespace, metadata.name),
        task_queue=queues.WORKFLOWS,
        start_signal=ModelDeploymentSignals.SET_SPEC.name,
        start_signal_args=[SetSpec(by="example", manifest=dump(manifest))],
    )
    await until_ready(handle)
    await handle.signal(
        ModelDeploymentSignals.SCALE.name, Scale(by="example", replicas=replicas)
    )
    await until_ready(handle, replicas)


parser = argparse.ArgumentParser(description="Apply a deployment, scale it and wait.")
parser.add_argument("file", type=Path)
parser.add_argument("replicas", type=int)
chosen = parser.parse_args()
try:
    asyncio.run(
        asyncio.wait_for(main(chosen.file.read_text(), chosen.replicas), timeout=600)
    )
except (OSError, RuntimeError) as error:
    # The file is missing, Temporal does not answer, or the replicas are not Ready in time.
    sys.exit(
        f"{type(error).__name__}: {error}; `modelplane up` starts a fleet and prints its "
        "address"
    )
sys.stdout.flush()
# Threads of the SDK may abort Python while it finalizes (temporalio/sdk-python#300).
os._exit(0)
