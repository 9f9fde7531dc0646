"""How a command fails: a message, the next step, and an exit code for scripts.

An error of the user never shows a traceback. Every exception but `CommandFailed` is a bug of this program and may show one.
"""

from collections.abc import Sequence
from enum import IntEnum

from api_types.payloads.limits import shortened
from api_types.text.printable import escaped

_LINE_BYTES_MAX = 4 * 1024
_DETAILS_BYTES_MAX = 48 * 1024

# How to have a worker, for the next step of everything that waits for one.
RUN_WORKER = "`modelplane up` on this machine, `modelplane-worker` elsewhere"
START_WORKER = f"start a worker: {RUN_WORKER}"


class ExitCode(IntEnum):
    """The exit codes of all programs of this project."""

    DONE = 0
    FAILED = 1
    REFUSED = 2
    NOT_FOUND = 3
    CONFLICT = 4
    TIMED_OUT = 5
    UNREACHABLE = 6


class CommandFailed(Exception):
    """The command failed.

    `details` are further lines, one fact each; `next_step` is what the user can do now, and no failure is without one.
    """

    code = ExitCode.FAILED

    def __init__(self, message: str, *, next_step: str, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = tuple(details)
        self.next_step = next_step


class Refused(CommandFailed):
    """Bad usage or bad input: nothing was sent."""

    code = ExitCode.REFUSED


class Forbidden(Refused):
    """The user has no right to do this, or to see these objects."""


class NotFound(CommandFailed):
    """An object does not exist."""

    code = ExitCode.NOT_FOUND


class Conflict(CommandFailed):
    """The object was changed concurrently, or is being deleted."""

    code = ExitCode.CONFLICT


class Modified(Conflict):
    """The object was changed since it was read."""


class AlreadyExists(Conflict):
    """An object of this name exists already."""


class TimedOut(CommandFailed):
    """A wait timed out; what it waited for may still happen."""

    code = ExitCode.TIMED_OUT


class Unreachable(CommandFailed):
    """Temporal does not answer, the front does not, or no worker does."""

    code = ExitCode.UNREACHABLE


class NoAnswer(Unreachable):
    """The object is known, but no worker answered for it."""


def combine(failures: Sequence[CommandFailed]) -> CommandFailed:
    """Combine the failures of several objects: the highest exit code, every message, the first next step."""
    if len(failures) == 1:
        return failures[0]
    highest = max(failures, key=lambda failure: failure.code)
    details = [line for failure in failures for line in (failure.message, *(f"  {detail}" for detail in failure.details))]
    return type(highest)(f"{len(failures)} objects failed", details=details, next_step=failures[0].next_step)


def report(failure: CommandFailed) -> str:
    """Give the text for standard error: message, details, next step; of many details the first, and how many more there are.

    What is quoted in them cannot look like a line of its own.
    """
    lines = [f"error: {_indented(failure.message)}"]
    left = _DETAILS_BYTES_MAX
    for at, detail in enumerate(failure.details):
        line = f"  {_indented(detail)}"
        left -= len(line.encode())
        if left < 0:
            lines.append(f"  and {len(failure.details) - at} more")
            break
        lines.append(line)
    return "\n".join([*lines, f"next: {_indented(failure.next_step)}"])


def _indented(text: str) -> str:
    return shortened(escaped(text, "\n\t"), _LINE_BYTES_MAX).replace("\n", "\n    ")
