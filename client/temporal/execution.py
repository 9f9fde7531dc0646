"""What Temporal itself knows of an object's owner: its page in the UI, and the steps that are failing right now.

A condition speaks once there is a verdict. A step that is being tried again and again says earlier, and in more detail, what is wrong.
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


async def execution_of(plane: ControlPlane, wanted: Target) -> Execution:
    """Look at the workflow of an object; without an answer from Temporal, only its page is known."""
    page = f"{list_link(plane.settings)}/{quote(wanted.workflow_id, safe='')}"
    try:
        found = await plane.client.get_workflow_handle(wanted.workflow_id).describe()
    except RPCError:
        return Execution(page)
    return Execution(f"{page}/{found.run_id}/history", tuple(failing_steps(found.raw_description.pending_activities)))


def failing_steps(pending: Iterable[PendingActivityInfo]) -> list[str]:
    """Say for each step with a failed attempt which one it is, how often it was tried and what it said last."""
    return [
        f"{step.activity_type.name}, attempt {step.attempt}: {_words(step.last_failure)}"
        for step in pending
        if step.HasField("last_failure")
    ]


def _words(failure: Failure) -> str:
    # A failure with a long stack trace is wrapped by the server in one that says only that it was too long.
    told = failure.cause if failure.HasField("server_failure_info") and failure.HasField("cause") else failure
    return " ".join(told.message.split())
