"""How long tests wait for a condition, and how often they check it."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

# Seconds. The limit only bounds a failure, so it is far longer than any wait needs.
TIMEOUT_SECONDS = 300.0

# Each check costs a query or a request, so the pauses grow with the time waited.
SHORTEST_PAUSE_SECONDS = 0.3
LONGEST_PAUSE_SECONDS = 1.0

# In Linux' /proc/stat, the fields after `steal` are already part of the first two.
_STAT = Path("/proc/stat")
_STEAL = 8


def machine_seconds() -> float:
    """Return the seconds of a clock that ignores stolen and stopped processor time.

    A virtual machine on a busy host can be ten times slower for minutes. A promised
    number of seconds means seconds of running processors.
    """
    return _seconds_of_processors() if _STAT.exists() else time.monotonic()


def pauses(
    within: float = TIMEOUT_SECONDS,
    shortest: float = SHORTEST_PAUSE_SECONDS,
    longest: float = LONGEST_PAUSE_SECONDS,
) -> Iterator[float]:
    """Yield the seconds to sleep before each further check, until `within` is over.

    There is at least one check.
    """
    began = machine_seconds()
    passed = 0.0
    while passed <= within:
        yield min(max(passed / 10, shortest), longest)
        passed = machine_seconds() - began


def _seconds_of_processors() -> float:
    """Return the counted seconds of work and idle time, without stolen time."""
    ticks = [
        int(field)
        for field in _STAT.read_text().splitlines()[0].split()[1 : _STEAL + 1]
    ]
    return (sum(ticks) - ticks[-1]) / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
