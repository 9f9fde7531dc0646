"""The errors of this library. Each has a message for the user and the next step.

The command line turns them into exit codes (`client/failures.py`), the front into HTTP
statuses (`front/serving/writes/object_workflows.py`). Every other exception is a bug.
"""

from collections.abc import Sequence

# How to start a worker. It is the next step of every error about a missing worker.
RUN_WORKER = "`modelplane up` on this machine, `modelplane-worker` elsewhere"
START_WORKER = f"start a worker: {RUN_WORKER}"


class CommandFailed(Exception):
    """The request failed.

    `details` are further lines, one fact each. `next_step` is what the user can do;
    every error has one.
    """

    def __init__(
        self, message: str, *, next_step: str, details: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = tuple(details)
        self.next_step = next_step


class Refused(CommandFailed):
    """The input is invalid; nothing was sent."""


class Forbidden(Refused):
    """The user has no right to do this, or to see these objects."""


class NotFound(CommandFailed):
    """An object does not exist."""


class WriteConflict(CommandFailed):
    """The object was changed concurrently, or is being deleted."""


class Modified(WriteConflict):
    """The object was changed after it was read."""


class AlreadyExists(WriteConflict):
    """An object with this name exists."""


class TimedOut(CommandFailed):
    """A wait timed out. Its condition may still become true."""


class Unreachable(CommandFailed):
    """Temporal, the front, or every worker does not answer."""


class NoAnswer(Unreachable):
    """The object exists, but no worker answered for it."""
