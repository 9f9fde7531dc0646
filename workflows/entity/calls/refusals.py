"""Retries refused activity calls, so that no unreadable argument ends a workflow.

Unreadable arguments fail an activity permanently (`activities.arguments`), because no
worker of the same release could read them. During an upgrade, a worker of another
release may be able to read them. So the workflow retries at growing intervals, and
shows why it waits. This is for activities that call entities. Failures of calls to
clusters have separate conditions and backoffs.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from api_types.errors import error_message
from workflows.entity import backoff

ResultT = TypeVar("ResultT")

NEXT_CALL = "retry a refused call"
"""The summary of the timer."""


class CallingWorkflow(Protocol):
    """A workflow that shows refused calls.

    A call is identified by the summary of its activity.
    """

    def call_refused(self, summary: str, problem: str) -> None:
        """Show that a call was refused and is retried."""

    def call_accepted(self, summary: str) -> None:
        """Remove the report of a refused call."""

    async def before_next_call(self, delay: timedelta) -> None:
        """Wait for the delay, or until a user requests the next attempt."""


async def until_accepted(
    call: Callable[[], Awaitable[ResultT]], summary: str
) -> ResultT:
    """Execute an activity of this workflow, and retry it while it is refused."""
    attempts = 0
    while True:
        try:
            result = await call()
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            _caller().call_refused(summary, error_message(error))
        else:
            if attempts:
                _caller().call_accepted(summary)
            return result
        await _caller().before_next_call(backoff.refused(attempts))
        attempts += 1


def _caller() -> CallingWorkflow:
    caller: CallingWorkflow = workflow.instance()
    return caller
