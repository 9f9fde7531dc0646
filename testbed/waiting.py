"""Wait for a condition, with a limit and an explanation.

Every wait in the testbed ends, either with the condition or with an error that contains
the end of the failed part's log.
"""

import time
from collections.abc import Callable
from pathlib import Path

PAUSE_SECONDS = 0.05
LOG_LINES = 20


class StartFailed(Exception):
    """A part of the testbed did not start.

    The message contains the end of its log and the next step.
    """


def wait_until(
    ready: Callable[[], bool], seconds: float, otherwise: Callable[[], str]
) -> None:
    """Wait until `ready()` is true.

    Raise StartFailed with `otherwise()` after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise StartFailed(otherwise())
        time.sleep(PAUSE_SECONDS)


def tail(log: Path, lines: int = LOG_LINES) -> str:
    """Return the end of a log, indented."""
    try:
        text = log.read_text(errors="replace")
    except FileNotFoundError:
        return "  (it has written no log)"
    return (
        "\n".join(f"  {line[:500]}" for line in text.splitlines()[-lines:])
        or "  (its log is empty)"
    )
