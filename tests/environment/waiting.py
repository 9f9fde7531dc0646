"""How long tests wait for something, and how often they look."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

# A limit only bounds a failure: it is far more than is ever needed.
TIMEOUT_SECONDS = 300.0

# Each look costs a query or a request: the longer something takes, the longer the pauses.
SHORTEST_PAUSE_SECONDS = 0.3
LONGEST_PAUSE_SECONDS = 1.0

# Of Linux. The fields after the last one here are parts of the first two.
_STAT = Path("/proc/stat")
_STEAL = 8


def machine_seconds() -> float:
    """A clock that stands still while this machine's processors are stopped, or work for other machines.

    A virtual machine on a busy host can be slower by ten times for minutes. What is promised within seconds is promised of processors that
    run.
    """
    return _seconds_of_processors() if _STAT.exists() else time.monotonic()


def pauses(
    within: float = TIMEOUT_SECONDS, shortest: float = SHORTEST_PAUSE_SECONDS, longest: float = LONGEST_PAUSE_SECONDS
) -> Iterator[float]:
    """Yield the seconds to sleep before each further look, until `within` is over.

    There is at least one look.
    """
    began = machine_seconds()
    passed = 0.0
    while passed <= within:
        yield min(max(passed / 10, shortest), longest)
        passed = machine_seconds() - began


def _seconds_of_processors() -> float:
    """Return the seconds of work and idle time that the kernel counted. Stolen time does not count."""
    ticks = [int(field) for field in _STAT.read_text().splitlines()[0].split()[1 : _STEAL + 1]]
    return (sum(ticks) - ticks[-1]) / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
