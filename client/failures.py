"""How a command reports a failure: the text on standard error, and the exit code.

Every failure that a user can cause is a `CommandFailed`, and is reported without a
traceback.
"""

from collections.abc import Sequence
from enum import IntEnum

from api_types.payloads.limits import shortened
from api_types.text.printable import escaped
from fleet_client.errors import (
    CommandFailed,
    NotFound,
    Refused,
    TimedOut,
    Unreachable,
    WriteConflict,
)

_LINE_BYTES_MAX = 4 * 1024
_DETAILS_BYTES_MAX = 48 * 1024


class ExitCode(IntEnum):
    """The exit codes of `modelplane`."""

    DONE = 0
    FAILED = 1
    REFUSED = 2
    NOT_FOUND = 3
    CONFLICT = 4
    TIMED_OUT = 5
    UNREACHABLE = 6


_EXIT_CODES: dict[type[CommandFailed], ExitCode] = {
    Refused: ExitCode.REFUSED,
    NotFound: ExitCode.NOT_FOUND,
    WriteConflict: ExitCode.CONFLICT,
    TimedOut: ExitCode.TIMED_OUT,
    Unreachable: ExitCode.UNREACHABLE,
}


def exit_code_of(failure: CommandFailed) -> ExitCode:
    """Return the exit code of the nearest base class of a failure."""
    for base in type(failure).__mro__:
        if base in _EXIT_CODES:
            return _EXIT_CODES[base]
    return ExitCode.FAILED


def combine(failures: Sequence[CommandFailed]) -> CommandFailed:
    """Combine the failures of several objects into one.

    The result has the type with the highest exit code, every message, and the first next
    step.
    """
    if len(failures) == 1:
        return failures[0]
    highest = max(failures, key=exit_code_of)
    details: list[str] = []
    for failure in failures:
        details.append(failure.message)
        details += [f"  {detail}" for detail in failure.details]
    return type(highest)(
        f"{len(failures)} objects failed",
        details=details,
        next_step=failures[0].next_step,
    )


def report(failure: CommandFailed) -> str:
    """Return the text for standard error: the message, the details and the next step.

    Details over the size limit are counted instead of shown. Line breaks inside a text are
    indented, so that no quoted text looks like a line of the report itself.
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
