"""Durations of the Gateway API (GEP-2257).

They are up to four whole numbers, each with a unit, such as `300s` or `1m30s`.
"""

import re

PATTERN = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"
_PART = re.compile(r"([0-9]{1,5})(ms|h|m|s)")
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


def milliseconds(duration: str) -> int:
    """Return the length in milliseconds of a duration that matches `PATTERN`."""
    return sum(
        int(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(duration)
    )
