"""Names that are nearly the one that was written: attributes, labels, classes, priority classes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

# Of longer names the beginnings are compared. Among more names than this, or with more pairs of characters to compare (of 0.2 µs), none is
# looked for: an explanation is no search.
_LENGTH_MAX = 64
_NAMES_MAX = 1_000
_PAIRS_MAX = 200_000
# A name is near if at most every third character differs, or if it contains the whole other one, of so many characters at least.
_PART_OF_LENGTH = 3
_CONTAINED_MIN = 3


def by_nearness(name: str, candidates: Iterable[str]) -> list[str]:
    """Sort names by how many characters differ from a name, then by name."""
    return sorted(set(candidates), key=lambda other: (not _contained(name, other), _distance(name, other), other))


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Give the name that was probably meant, "" if none is near."""
    known = list(islice(candidates, _NAMES_MAX + 1))
    if len(known) > _NAMES_MAX:
        return ""
    possible = [other for other in known if other != name and (_contained(name, other) or _is_as_long(name, other))]
    if sum(min(len(other), _LENGTH_MAX) for other in possible) * min(len(name), _LENGTH_MAX) > _PAIRS_MAX:
        return ""
    return next((other for other in by_nearness(name, [other for other in possible if _is_near(name, other)])), "")


def _is_near(name: str, other: str) -> bool:
    if _contained(name, other):
        return True
    return _is_as_long(name, other) and _distance(name, other) * _PART_OF_LENGTH <= max(len(name), len(other))


def _is_as_long(name: str, other: str) -> bool:
    """Whether one may be near the other by their lengths: the difference is the least that has to be inserted."""
    return abs(len(name) - len(other)) * _PART_OF_LENGTH <= max(len(name), len(other))


def _contained(name: str, other: str) -> bool:
    short, long = sorted((name[:_LENGTH_MAX].lower(), other[:_LENGTH_MAX].lower()), key=len)
    return len(short) >= _CONTAINED_MIN and short in long


def _distance(name: str, other: str) -> int:
    """Count the characters to insert, delete, replace or swap with the next one; a difference of case alone counts nothing."""
    left, right = name[:_LENGTH_MAX].lower(), other[:_LENGTH_MAX].lower()
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        last, row, older = row, [i], before
        for j, b in enumerate(right, 1):
            best = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and (a, left[i - 2]) == (right[j - 2], b):
                best = min(best, older[j - 2] + 1)
            row.append(best)
        before = last
    return row[-1]
