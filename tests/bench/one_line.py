"""The result of a benchmark: one JSON line on standard output, whatever the processes that it starts say there."""

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def one_line() -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Keep standard output for the one line, and give what writes it, with the load average before and after and the machine."""
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
