"""Versions of GKE, such as `1.35.2-gke.1269`, against what a manifest asks for: that, or an alias such as `1.35`."""

import re
from collections.abc import Iterable

_NUMBERS = re.compile(r"[0-9]+")


def numbers(version: str) -> tuple[int, ...]:
    """Give a version as numbers that sort."""
    return tuple(int(part) for part in _NUMBERS.findall(version))


def minor(version: str) -> tuple[int, ...]:
    """Give major and minor."""
    return numbers(version)[:2]


def is_below(observed: str, wanted: str) -> bool:
    """Whether a cluster or pool must be upgraded. What is above stays: the release channel upgrades by itself."""
    is_alias = len(numbers(wanted)) == len(minor(wanted))
    return minor(observed) < minor(wanted) if is_alias else numbers(observed) < numbers(wanted)


def next_step(observed: str, wanted: str) -> str:
    """Give the version of the next upgrade: one minor at a time."""
    major, above = minor(observed)[0], minor(observed)[1] + 1
    return f"{major}.{above}" if minor(wanted) > (major, above) else wanted


def is_offered(wanted: str, offered: Iterable[str]) -> bool:
    """Whether one of the versions is what is wanted."""
    parts = numbers(wanted)
    return any(numbers(each)[: len(parts)] == parts for each in offered)
