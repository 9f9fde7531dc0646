"""A preceding run, for tests that start after an object's first run.

A workflow accepts a state only from the run before it.

This needs a worker of the test, with a worker's permissions. A client alone cannot do
it.
"""

from typing import Any

from temporalio import workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from api_types import queues
from tests.workflows.environment.harness import eventually

QUEUE = "runs-before"


@workflow.defn(sandboxed=False)
class RunBefore:
    """A stand-in for the earlier runs of an object."""

    @workflow.run
    async def run(self, kind: str, state: Any) -> None:
        """Continue as the object."""
        workflow.continue_as_new(
            args=[state], workflow=kind, task_queue=queues.WORKFLOWS
        )


def serving_runs_before(client: Client) -> Worker:
    return Worker(client, task_queue=QUEUE, workflows=[RunBefore])


async def start_continued(
    client: Client, kind: str, workflow_id: str, state: Any, **identity: Any
) -> WorkflowHandle[Any, Any]:
    """Start an object that continues with a state, and wait until it does.

    Signals to the preceding run are lost.
    """
    await client.start_workflow(
        "RunBefore", args=[kind, state], id=workflow_id, task_queue=QUEUE, **identity
    )
    handle = client.get_workflow_handle(workflow_id)
    await eventually(
        lambda: _type_of(handle),
        lambda found: found == kind,
        what=f"the run of {workflow_id} that continues",
    )
    return handle


async def _type_of(handle: WorkflowHandle[Any, Any]) -> str:
    return (await handle.describe()).workflow_type
