"""How a process that used the Temporal SDK exits."""

import os
import sys
from typing import NoReturn


def exit_process(code: int) -> NoReturn:
    """Flush the standard streams and exit with that code at once. The caller has cleaned up before.

    Threads of the Temporal SDK may still be returning from the last call, and Python aborts when they do so while it finalizes
    (temporalio/sdk-python#300): the exit code would be that of the abort.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
