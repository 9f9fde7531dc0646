"""Calls that a worker refused are made again: no workflow ends because of what another process cannot read.

Arguments that cannot be read fail an activity for good (`activities.arguments`), because no worker of the same release could read them.
During an upgrade one of another release may. So the workflow makes another attempt, ever more rarely, and says why it waits. This is for
activities that call entities: failures of those that call clusters have conditions and backoffs of their own.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from api_types.errors import error_message
from workflows.entity import backoff

ResultT = TypeVar("ResultT")

NEXT_CALL = "make a call again that was refused"
"""The summary of the timer."""


class Caller(Protocol):
    """A workflow that shows what is refused. A call is known by the summary of its activity."""

    def call_refused(self, summary: str, problem: str) -> None:
        """Show that a call is refused, and is made again."""

    def call_accepted(self, summary: str) -> None:
        """Show it no more."""

    async def before_next_call(self, delay: timedelta) -> None:
        """Wait for so long, or until a user wants the next attempt now."""


async def until_accepted(call: Callable[[], Awaitable[ResultT]], summary: str) -> ResultT:
    """Execute an activity of this workflow, and again while it is refused."""
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


def _caller() -> Caller:
    caller: Caller = workflow.instance()
    return caller
