"""Translates errors of Temporal into errors for users, each with a next step.

An error alone does not say why an object is silent, so Temporal is asked whether a worker
polls.
"""

import asyncio

from temporalio.client import Client, RPCError
from temporalio.service import RPCStatusCode

from api_types import queues
from api_types.settings import Settings
from fleet_client.errors import (
    RUN_WORKER,
    START_WORKER,
    CommandFailed,
    NoAnswer,
    Unreachable,
)
from fleet_client.refs.seen import not_found
from fleet_client.refs.targets import Target
from fleet_client.temporal.connection import unreachable
from fleet_client.temporal.worker_versions import is_polled

# Statuses of a query while no worker polls, before the first workflow task is done, or
# after the worker has stopped.
UNANSWERED = {
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.FAILED_PRECONDITION,
    RPCStatusCode.RESOURCE_EXHAUSTED,
}
# The server lists a worker for some minutes after its end.
_BUSY = (
    "the workers or Temporal are busy, or the last worker has just ended: repeat the command "
    "in a minute; if it lasts, see `modelplane workers status`, and the log and load of the "
    f"workers; if none runs, {START_WORKER}"
)
# Many objects of a list may be silent at once.
_POLLED_SECONDS = 10.0
# The server's message about a workflow whose task has failed or timed out several times.
_TASK_FAILS = "workflow task in failed state"


class TemporalFailures:
    """The errors of one connection."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._polled: tuple[float, bool] | None = None

    async def next_step_of_silence(self) -> str:
        """Return the next step for objects that do not answer."""
        return _BUSY if await self._has_workers() else START_WORKER

    async def silence(self, target: Target, *details: str) -> NoAnswer:
        """Return the error for an object that does not answer."""
        if await self._has_workers():
            text = (
                f"workers polled lately, but none answered for {target.title} in time"
            )
            return NoAnswer(text, details=details, next_step=_BUSY)
        text = f"no worker answers for {target.title}"
        return NoAnswer(text, details=details, next_step=START_WORKER)

    async def _has_workers(self) -> bool:
        """Return whether a worker polls for workflow tasks, as of some seconds ago."""
        now = asyncio.get_running_loop().time()
        if self._polled is None or now - self._polled[0] > _POLLED_SECONDS:
            try:
                found = await is_polled(self._client, queues.WORKFLOWS)
            except RPCError:
                # Temporal itself is too slow, so nothing shows that a worker is missing.
                found = True
            self._polled = (now, found)
        return self._polled[1]

    async def of_answer(self, error: RPCError, target: Target) -> CommandFailed:
        """Translate an error of a query or an update, which need a worker."""
        is_failing = _TASK_FAILS in error.message.lower()
        if error.status in UNANSWERED and not is_failing:
            return await self.silence(target, error.message)
        return self.of(error, target)

    def of_sending(self, error: RPCError, target: Target) -> CommandFailed:
        """Translate an error of a signal, which needs no worker."""
        if error.status in UNANSWERED:
            return unreachable(self._settings, error)
        return self.of(error, target)

    def of(self, error: RPCError, target: Target | None) -> CommandFailed:
        """Translate an RPC error of Temporal."""
        if (
            error.status == RPCStatusCode.NOT_FOUND
            and "namespace" in error.message.lower()
        ):
            name = self._settings.temporal.namespace
            return Unreachable(
                f"Temporal at {self._settings.temporal.address} has no namespace {name!r}",
                next_step=(
                    f"create it with `temporal operator namespace create {name}`, or "
                    "set temporal.namespace"
                ),
            )
        if error.status == RPCStatusCode.NOT_FOUND and target:
            return not_found(target)
        if (
            error.status == RPCStatusCode.FAILED_PRECONDITION
            and _TASK_FAILS in error.message.lower()
            and target
        ):
            return NoAnswer(
                f"the workflow of {target.title} cannot answer: its workflow task fails",
                details=[error.message],
                next_step=(
                    f"read the log of the workers; `modelplane ui {target.command}` "
                    "opens its history"
                ),
            )
        if error.status in UNANSWERED:
            return NoAnswer(
                "Temporal is too slow to answer",
                details=[error.message],
                next_step=_BUSY,
            )
        if (
            error.status == RPCStatusCode.INVALID_ARGUMENT
            and "search attribute" in error.message.lower()
        ):
            return Unreachable(
                f"Temporal namespace {self._settings.temporal.namespace!r} does "
                "not have the search attributes of this control plane yet",
                details=[error.message],
                next_step=f"start a worker once, which registers them: {RUN_WORKER}",
            )
        if error.status == RPCStatusCode.INVALID_ARGUMENT:
            about = f" about {target.title}" if target else ""
            return CommandFailed(
                f"Temporal at {self._settings.temporal.address} refuses the request{about}",
                details=[error.message],
                next_step="fix the problem in the message, such as a request that is too large",
            )
        if error.status in {
            RPCStatusCode.UNAUTHENTICATED,
            RPCStatusCode.PERMISSION_DENIED,
        }:
            return Unreachable(
                f"Temporal at {self._settings.temporal.address} refuses this client",
                details=[error.message],
                next_step=(
                    "check temporal.apiKeyFile, the TLS files and temporal.namespace "
                    "in the settings"
                ),
            )
        return unreachable(self._settings, error)
