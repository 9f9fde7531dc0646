"""Compare versions of GKE, such as `1.35.2-gke.1269`, with the version of a manifest.

A manifest may also contain an alias, such as `1.35`.
"""

import re
from collections.abc import Iterable

_NUMBERS = re.compile(r"[0-9]+")


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers that can be compared."""
    return tuple(int(part) for part in _NUMBERS.findall(version))


def minor(version: str) -> tuple[int, ...]:
    """Return major and minor version."""
    return numbers(version)[:2]


def is_below(observed: str, wanted: str) -> bool:
    """Return True if a cluster or pool must be upgraded.

    A higher version is kept, because the release channel upgrades clusters by itself.
    """
    is_alias = len(numbers(wanted)) == len(minor(wanted))
    return (
        minor(observed) < minor(wanted)
        if is_alias
        else numbers(observed) < numbers(wanted)
    )


def next_step(observed: str, wanted: str) -> str:
    """Return the version of the next upgrade: one minor version at a time."""
    major, above = minor(observed)[0], minor(observed)[1] + 1
    return f"{major}.{above}" if minor(wanted) > (major, above) else wanted


def is_offered(wanted: str, offered: Iterable[str]) -> bool:
    parts = numbers(wanted)
    return any(numbers(each)[: len(parts)] == parts for each in offered)
