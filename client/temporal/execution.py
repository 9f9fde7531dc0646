"""The workflow execution of an object: its page in the Temporal UI, and what of it is failing.

A condition is set once there is a result. An activity that is being retried shows earlier, and in more detail, what is wrong. A workflow
whose tasks fail answers no query, as if there were no worker.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, RPCError, WorkflowExecutionDescription

from api_types.settings import Settings
from client.refs.targets import Target
from client.temporal.links import list_link

# Of a workflow task only the first failed attempt is recorded; signals may follow it.
_EVENTS_READ = 50


@dataclass(frozen=True)
class Execution:
    """The workflow behind an object. `failing` has a line for each step that failed and will be tried again.

    `link`: its page in the Temporal UI; empty for whoever does not reach Temporal.
    """

    link: str = ""
    failing: tuple[str, ...] = ()


async def execution_of(client: Client, settings: Settings, target: Target) -> Execution:
    """Describe the workflow of an object; if Temporal does not answer, only its page is known."""
    page = f"{list_link(settings)}/{quote(target.workflow_id, safe='')}"
    try:
        found = await client.get_workflow_handle(target.workflow_id).describe()
    except RPCError:
        return Execution(page)
    failing = [*await _failing_task(client, found), *failing_steps(found.raw_description.pending_activities)]
    return Execution(f"{page}/{found.run_id}/history", tuple(failing))


async def _failing_task(client: Client, found: WorkflowExecutionDescription) -> list[str]:
    """Give a line for a workflow task that was tried before: which attempt it is, and why the last recorded one failed."""
    attempt = found.raw_description.pending_workflow_task.attempt
    if attempt <= 1:
        return []
    execution = WorkflowExecution(workflow_id=found.id, run_id=found.run_id)
    request = GetWorkflowExecutionHistoryReverseRequest(namespace=client.namespace, execution=execution, maximum_page_size=_EVENTS_READ)
    try:
        answer = await client.workflow_service.get_workflow_execution_history_reverse(request)
    except RPCError:
        return [f"workflow task, attempt {attempt}"]
    failures = (event.workflow_task_failed_event_attributes.failure for event in answer.history.events)
    why = next((message for failure in failures if (message := _message(failure))), "it timed out, or its worker was lost")
    return [f"workflow task, attempt {attempt}: {why}"]


def failing_steps(pending: Iterable[PendingActivityInfo]) -> list[str]:
    """Give for each activity with a failed attempt its type, its attempt and its last failure."""
    return [
        f"{step.activity_type.name}, attempt {step.attempt}: {_message(step.last_failure)}"
        for step in pending
        if step.HasField("last_failure")
    ]


def _message(failure: Failure) -> str:
    # The server wraps a failure with a long stack trace in one that says only that it was too long.
    shown = failure.cause if failure.HasField("server_failure_info") and failure.HasField("cause") else failure
    return " ".join(shown.message.split())
