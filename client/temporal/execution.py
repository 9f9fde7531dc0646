"""The workflow execution of an object: its page in the Temporal UI, and its activities that are failing.

A condition is set once there is a result. An activity that is being retried shows earlier, and in more detail, what is wrong.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import RPCError

from client.refs.targets import Target
from client.temporal.control_plane import ControlPlane
from client.temporal.links import list_link


@dataclass(frozen=True)
class Execution:
    """The workflow behind an object. `failing` has a line for each step that failed and will be tried again."""

    link: str
    failing: tuple[str, ...] = ()


async def execution_of(plane: ControlPlane, target: Target) -> Execution:
    """Describe the workflow of an object; if Temporal does not answer, only its page is known."""
    page = f"{list_link(plane.settings)}/{quote(target.workflow_id, safe='')}"
    try:
        found = await plane.client.get_workflow_handle(target.workflow_id).describe()
    except RPCError:
        return Execution(page)
    return Execution(f"{page}/{found.run_id}/history", tuple(failing_steps(found.raw_description.pending_activities)))


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
