"""The result of a benchmark: one JSON line on standard output.

Output of the processes that a benchmark starts does not reach standard output.
"""

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def one_line() -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Reserve standard output for one line and yield its writer.

    The writer adds the machine and the load average before and after.
    """
    load_before = os.getloadavg()
    ours = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(figures: Mapping[str, Any]) -> None:
        machine = {
            "load_before": [round(load, 2) for load in load_before],
            "load_after": [round(load, 2) for load in os.getloadavg()],
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
        }
        ours.write(json.dumps({**figures, **machine}) + "\n")

    with ours:
        yield say
