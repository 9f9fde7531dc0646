"""CPU time in units of a fixed computation, so that a limit holds on every machine and load.

A limit in seconds fails on a slow or busy machine although nothing is wrong. A busy machine slows
the fixed computation as much as the code that a test measures, so the ratio of the two hardly
changes.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

_STEPS = 100_000
# A unit takes longer on every machine, so a block that is shorter needs no comparison.
_SHORTEST_UNIT_SECONDS = 0.001


@contextmanager
def effort_below(limit: float) -> Iterator[None]:
    """Fail if the block takes more CPU time than `limit` units."""
    began = time.process_time()
    yield
    used = time.process_time() - began
    if used > limit * _SHORTEST_UNIT_SECONDS:
        units = used / max(_unit() for _ in range(3))
        message = (
            f"the block took {units:.0f} units of CPU time; the limit is {limit:g}"
        )
        assert units < limit, message


def _unit() -> float:
    began = time.process_time()
    counts: dict[int, int] = {}
    for number in range(_STEPS):
        counts[number % 7] = counts.get(number % 7, 0) + number
    return time.process_time() - began
