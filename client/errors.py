"""How a command fails: one message for a person, what to do next, and an exit code for a script.

A mistake of the user never shows a traceback. Whatever is not a `CommandFailed` is a bug of this program and may show one.
"""

from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """What a script can tell from the exit code."""

    DONE = 0
    FAILED = 1
    REFUSED = 2
    NOT_FOUND = 3
    CONFLICT = 4
    TIMED_OUT = 5
    UNREACHABLE = 6


class CommandFailed(Exception):
    """The command cannot do what was asked.

    `details` are further lines, one fact each; `next_step` says what the user can do now.
    """

    code = ExitCode.FAILED

    def __init__(self, message: str, *, details: Sequence[str] = (), next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.details = tuple(details)
        self.next_step = next_step


class Refused(CommandFailed):
    """Bad usage or bad input: nothing was sent."""

    code = ExitCode.REFUSED


class NotFound(CommandFailed):
    """There is no such object."""

    code = ExitCode.NOT_FOUND


class Conflict(CommandFailed):
    """The object was changed by somebody else, or is being deleted."""

    code = ExitCode.CONFLICT


class TimedOut(CommandFailed):
    """What was waited for did not happen in time; it may still happen."""

    code = ExitCode.TIMED_OUT


class Unreachable(CommandFailed):
    """Temporal, or every worker behind it, does not answer."""

    code = ExitCode.UNREACHABLE


class NoAnswer(Unreachable):
    """Temporal knows the object, but no worker answered for it."""


def combine(failures: Sequence[CommandFailed]) -> CommandFailed:
    """Join the failures of several objects: the worst exit code, every message, the first next step."""
    if len(failures) == 1:
        return failures[0]
    worst = max(failures, key=lambda failure: failure.code)
    details = [line for failure in failures for line in (failure.message, *(f"  {detail}" for detail in failure.details))]
    next_step = next((failure.next_step for failure in failures if failure.next_step), "")
    return type(worst)(f"{len(failures)} objects failed", details=details, next_step=next_step)


def report(failure: CommandFailed) -> str:
    """Give the text for standard error: what happened, the facts, the next step."""
    lines = [f"error: {failure.message}"]
    lines += [f"  {detail}" for detail in failure.details]
    if failure.next_step:
        lines.append(f"next: {failure.next_step}")
    return "\n".join(lines)
