"""The workflow execution of an object: its page in the UI, and its failing steps.

Conditions change only after an activity has ended. An activity that is being retried
shows a problem earlier and in more detail. A workflow whose tasks fail does not answer
queries, as if no worker were running.
"""

from collections.abc import Iterable
from urllib.parse import quote

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, RPCError, WorkflowExecutionDescription

from api_types.settings import Settings
from fleet_client.refs.seen import Execution
from fleet_client.refs.targets import Target
from fleet_client.temporal.links import list_link

# The history records only the first failed attempt of a workflow task. Signals may
# follow it, so several of the newest events are read.
_EVENTS_READ = 50


async def execution_of(client: Client, settings: Settings, target: Target) -> Execution:
    """Describe the workflow of an object.

    If Temporal does not answer, return only the link to the workflow's page.
    """
    page = f"{list_link(settings)}/{quote(target.workflow_id, safe='')}"
    try:
        found = await client.get_workflow_handle(target.workflow_id).describe()
    except RPCError:
        return Execution(page)
    failing = [
        *await _failing_task(client, found),
        *failing_steps(found.raw_description.pending_activities),
    ]
    return Execution(f"{page}/{found.run_id}/history", tuple(failing))


async def _failing_task(
    client: Client, found: WorkflowExecutionDescription
) -> list[str]:
    """Return a line about a workflow task that is retried, or nothing.

    The line has the attempt and the last failure.
    """
    attempt = found.raw_description.pending_workflow_task.attempt
    if attempt <= 1:
        return []
    execution = WorkflowExecution(workflow_id=found.id, run_id=found.run_id)
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace, execution=execution, maximum_page_size=_EVENTS_READ
    )
    try:
        answer = await client.workflow_service.get_workflow_execution_history_reverse(
            request
        )
    except RPCError:
        return [f"workflow task, attempt {attempt}"]
    messages = (
        _message(event.workflow_task_failed_event_attributes.failure)
        for event in answer.history.events
    )
    why = next(filter(None, messages), "it timed out, or its worker was lost")
    return [f"workflow task, attempt {attempt}: {why}"]


def failing_steps(pending: Iterable[PendingActivityInfo]) -> list[str]:
    """Return a line for each activity with a failed attempt.

    The line has the activity type, the attempt and the last failure.
    """
    return [
        f"{step.activity_type.name}, attempt {step.attempt}: {_message(step.last_failure)}"
        for step in pending
        if step.HasField("last_failure")
    ]


def _message(failure: Failure) -> str:
    # The server replaces an oversized failure with its own, whose cause is the
    # original.
    shown = (
        failure.cause
        if failure.HasField("server_failure_info") and failure.HasField("cause")
        else failure
    )
    return " ".join(shown.message.split())
