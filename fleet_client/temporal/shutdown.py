"""The exit of a process that used the Temporal SDK."""

import os
import sys
from typing import NoReturn

from fleet_client.errors import CommandFailed, Unreachable

# The exit codes of the worker and the front, besides 0.
BAD_SETTINGS = 2
NOT_CONNECTED = 6


def exit_process(code: int) -> NoReturn:
    """Flush the standard streams and exit at once.

    Callers must clean up before. Threads of the Temporal SDK may still be returning
    from the last call. Python aborts if they do so during its finalization
    (temporalio/sdk-python#300), and the exit code would be that of the abort.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def exit_failed(error: CommandFailed) -> NoReturn:
    """Print the error that ended a worker or a front, and exit with its code."""
    lines = [error.message, *error.details, error.next_step]
    sys.stderr.write("\n".join(filter(None, lines)) + "\n")
    is_unreachable = isinstance(error, Unreachable)
    exit_process(NOT_CONNECTED if is_unreachable else BAD_SETTINGS)
