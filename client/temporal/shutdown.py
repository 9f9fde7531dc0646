"""How a process that spoke with Temporal ends."""

import os
import sys
from typing import NoReturn


def exit_process(code: int) -> NoReturn:
    """End this process with that exit code, once all that was printed is out.

    Threads of the Temporal SDK may still be on their way back from the last call, and Python aborts when they arrive while it tears itself
    down (temporalio/sdk-python#300): the exit code would be that of the abort. A caller has cleaned up before it leaves.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
