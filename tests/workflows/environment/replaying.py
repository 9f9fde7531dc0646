"""Replay histories with the code as it is now."""

from datetime import datetime
from pathlib import Path

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from api_types.resources.kinds import SERVED
from workflows import registry


def replayer() -> Replayer:
    """Make a replayer of every workflow type."""
    workflows = [*registry.ENTITIES, *registry.SCHEDULER_WORKFLOWS]
    return Replayer(workflows=workflows, workflow_runner=registry.sandbox(), data_converter=pydantic_data_converter)


async def replay_all(client: Client, since: datetime, folder: Path) -> None:
    """Replay every run of our workflows that was started since then, and name all that fail; their histories are kept in the folder."""
    ours = ", ".join(f'"{kind}"' for kind in (*(info.kind for info in SERVED), "FleetScheduler"))
    failed = []
    async for run in client.list_workflows(f'WorkflowType IN ({ours}) AND StartTime >= "{since.isoformat()}"'):
        handle = client.get_workflow_handle(run.id, run_id=run.run_id)
        history = await handle.fetch_history()
        result = await replayer().replay_workflow(history, raise_on_replay_failure=False)
        if result.replay_failure is not None:
            kept = folder / f"{run.run_id}.json"
            kept.write_text(history.to_json())
            failed.append(f"{run.id}, kept as {kept}: {result.replay_failure}")
    assert not failed, "\n".join(failed)
