"""Wait for something to become true, with a bound and an explanation.

Every wait in the testbed ends: with what was waited for, or with the end of the log of whatever did not come up.
"""

import time
from collections.abc import Callable
from pathlib import Path

PAUSE_SECONDS = 0.05
LOG_LINES = 20


class StartFailed(Exception):
    """A part of the testbed did not come up; the message has the end of its log and the next step."""


def wait_until(ready: Callable[[], bool], seconds: float, otherwise: Callable[[], str]) -> None:
    """Return when `ready()` holds; raise StartFailed with `otherwise()` when it still does not after so many seconds."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise StartFailed(otherwise())
        time.sleep(PAUSE_SECONDS)


def tail(log: Path, lines: int = LOG_LINES) -> str:
    """Answer the end of a log, indented."""
    try:
        text = log.read_text(errors="replace")
    except FileNotFoundError:
        return "  (it has written no log)"
    return "\n".join(f"  {line[:500]}" for line in text.splitlines()[-lines:]) or "  (its log is empty)"
